#!/usr/bin/env python3
"""buzz-llama beside a real llama.cpp: the commands of examples/llama_cpp/README.md, bounds, refusals."""
import argparse
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "examples" / "calibrate" / "weights" / "smollm2-135m-instruct.calibration"


def run(program, *arguments, text=""):
    return subprocess.run([str(program), *map(str, arguments)], input=text, capture_output=True, text=True, timeout=600)


def held(out):
    """Tokens read, rows held, most rows and evictions of the last status line."""
    lines = re.findall(r"(\d+) tokens read, (\d+) of (\d+) rows held, .* (\d+) evictions", out.stderr)
    return tuple(map(int, lines[-1])) if lines else (0, 0, 0, 0)


def interrupted(program, model):
    """Ctrl-C as soon as an answer begins, in a terminal of its own; then /stats and /quit: what it said, exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(program, [str(program), str(model), "--rows", "256", "--answer", "100000"])
    said, sent = "", 0
    steps = [("> ", "Count from one to a thousand.\n"), (" ", "\x03"), ("\n> ", "/stats\n"), ("\n> ", "/quit\n")]
    begin, at = time.monotonic(), 0
    while time.monotonic() - begin < 120:
        try:
            said += os.read(terminal, 4096).decode(errors="replace")
        except OSError:  # it has ended
            break
        if sent < len(steps) and steps[sent][0] in said[at:]:
            time.sleep(1)  # an answer has begun, or nothing more comes
            os.write(terminal, steps[sent][1].encode())
            at, sent = len(said), sent + 1
    else:
        os.kill(pid, signal.SIGKILL)
    return said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=Path, help="the folder of the programs")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", default=3000, type=int, help="of a prompt file that is read through few rows")
    options = parser.parse_args()
    chat, measure = options.bin / "buzz-llama", options.bin / "buzz-llama-cpp"
    book = ROOT / "include" / "buzz" / "KNOBS.md"
    gemma = "gemma" in options.model.name
    rows = 1100 if gemma else 256
    good = True

    def check(name, right, out=None):
        nonlocal good
        good = good and right
        print(f"{options.model.name}: {name}: {'good' if right else 'WRONG'}")
        if not right and out is not None:
            print(out.stdout[-2000:], out.stderr[-2000:])

    def bounded(name, *arguments):
        out = run(chat, options.model, "--prompt-file", book, "--prompt-tokens", options.tokens, *arguments)
        read, now, most, evictions = held(out)
        check(name, out.returncode == 0 and read == options.tokens and now <= most and evictions > 0, out)

    bounded("rows", "--rows", rows, "--status-every", 1000)
    bounded("quantised cache", "--rows", rows, "--cache-type", "q8_0")
    bounded("quantised cache of 4 bits", "--rows", rows, "--cache-type", "q4_0")
    bounded("cache of bfloat16", "--rows", rows, "--cache-type", "bf16")
    bounded("memory", "--memory", "15M" if gemma else "6M")
    if not gemma:
        bounded("attention", "--rows", rows, "--policy", "tova")
        bounded("closed positions", "--rows", rows, "--positions", "closed")
        bounded("weights", "--rows", rows, "--weights", WEIGHTS)
        out = run(chat, options.model, "--answer", 12, text="What is the capital of France?\n/stats\n")
        check("chat", out.returncode == 0 and "Paris" in out.stdout and "tokens read" in out.stdout, out)
    for arguments in (["--rows", "3"], ["--memory", "x"], ["--memory", "1K"], ["--policy", "best"], ["--policy", "tri_attention"],
                      ["--prompt-file", "nowhere"], ["--weights", book], ["--cache-type", "q9"], ["--answer", "0"],
                      ["--policy", "tova", "--cache-type", "q8_0"], ["--policy", "streaming:window=99999"]):
        out = run(chat, options.model, *arguments)
        check("refuses " + " ".join(map(str, arguments)), out.returncode == 2 and out.stderr.count("\n") == 1, out)
    out = run(chat, "nowhere.gguf")
    check("refuses nowhere.gguf", out.returncode == 2 and "nowhere.gguf" in out.stderr, out)
    if not gemma:
        for more in ([], ["--unified"]):
            out = run(options.bin / "buzz-llama-cpp-slots", options.model, book, "--tokens", 40, *more)
            check("three slots " + " ".join(more), out.returncode == 0, out)
        saved = options.bin / "chat.saved"
        first, second = "My cat is called Mimi.\n", "What is my cat called?\n/stats\n"
        whole = run(chat, options.model, "--rows", rows, "--answer", 8, "--threads", 1, text=first + second)
        run(chat, options.model, "--rows", rows, "--answer", 8, "--threads", 1, text=first + f"/save {saved}\n")
        out = run(chat, options.model, "--rows", rows, "--answer", 8, "--threads", 1, text=f"/load {saved}\n" + second)
        check("a conversation that was saved goes on as if it had not been",
              out.returncode == 0 and "Mimi" in out.stdout and held(out)[1] == held(whole)[1] > 0 and
              out.stdout.splitlines()[0] == whole.stdout.splitlines()[1], out)
        out, code = interrupted(chat, options.model)
        check("Ctrl-C stops an answer and not the program", code == 0 and "tokens read" in out)
    out = run(options.bin / "buzz-llama-cpp-long", options.model, book, "--rows", rows, "--tokens", options.tokens,
              "--without", 256, "--every", 256)
    last = [line.split() for line in out.stdout.splitlines() if line.startswith("key_outliers")][-1:]
    check("long", out.returncode == 0 and last and int(last[0][1]) == options.tokens and int(last[0][2]) <= rows, out)
    out = run(measure, options.model, book, "--rows", rows, "--policy", "key_outliers", "--cost", 200)
    check("cost: " + out.stdout.strip(), out.returncode == 0, out)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
