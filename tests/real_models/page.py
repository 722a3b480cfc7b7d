#!/usr/bin/env python3
"""Runs every command of examples/llama_cpp/README.md as it stands there, in the project's folder.

But for building llama.cpp, which takes ten minutes: its wheel is kept in a folder, and pip finds it there.
"""
import argparse
import os
import subprocess
import sys
from pathlib import Path

from check import LLAMA_CPP

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "examples" / "llama_cpp" / "README.md"


def blocks(text):
    """The shell blocks of a page."""
    return [part.split("\n```")[0] for part in text.split("```sh\n")[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wheels", type=Path, required=True, help="the folder, where llama.cpp's wheel is or will be")
    options = parser.parse_args()
    if not list(options.wheels.glob("llama_cpp_python-*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", options.wheels,
                        LLAMA_CPP], check=True)
    script = "\n".join(blocks(PAGE.read_text(encoding="utf-8")))
    # A message for the first program that reads one; the others find the end of their input.
    done = subprocess.run(["bash", "-exuo", "pipefail", "-c", script], cwd=ROOT, input="What is the capital of France?\n",
                          text=True, env={**os.environ, "PIP_FIND_LINKS": str(options.wheels.resolve())})
    print(f"{PAGE.relative_to(ROOT)}: {'good' if done.returncode == 0 else 'WRONG'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
