#!/usr/bin/env python3
"""What the compiler makes of the CUDA kernels, on a machine without a GPU, beside what it made of them before.

Compiles machine_code.cu for each processor and prints of each kernel: its registers; bytes that it spills; and of the loop
that loads the most, as long as no other is in it: instructions, bytes that a warp loads in one pass, instructions for 4 KiB
of those, and 16-byte loads under way before one of them is used. Nothing runs: all paths of the loop count as taken, but
those of warps whose lanes have parted where they shuffle.

Ends with 1, and the kernel's name, where a kernel for sm_90 on touches memory before it has waited for the launch before
it, and where a number is worse than in machine_code.json: registers by more than the next multiple of 8, as the device
gives them out, instructions by more than 3 percent, which another compiler may take.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIMITS = HERE / "machine_code.json"
NVDISASM = "nvidia-cuda-nvdisasm==13.5.37"
PROCESSORS = ["sm_80", "sm_90", "sm_100"]
COLUMNS = ["registers", "spilled", "instructions", "bytes", "for_4_kib", "in_flight"]


def find_nvdisasm(cache, install):
    """Its path, from the toolkit or the cache, where it is put if that is wanted; or None and a line."""
    found = shutil.which("nvdisasm")
    folder = cache / NVDISASM.replace("==", "-")
    if not found and install and not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), NVDISASM]
        try:
            subprocess.run(pip, check=True, timeout=120)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{NVDISASM} could not be had: {error}")
    found = found or next((str(path) for path in folder.rglob("nvdisasm")), None)
    if not found:
        print("skipped: nvdisasm is absent, so loops were not looked at; registers and spills are")
    return found


def compile_kernels(nvcc, processor, cubin):
    """Makes the cubin; returns {mangled name: {registers, spilled}} as ptxas has them."""
    command = [nvcc, "-std=c++17", "-O3", f"-arch={processor}", "-cubin", "-Xptxas", "-v", "-I", HERE.parents[1] / "include",
               HERE / "machine_code.cu", "-o", cubin]
    said = subprocess.run(command, capture_output=True, text=True)
    if said.returncode != 0:
        sys.exit(f"{said.stderr}nvcc failed for {processor}")
    pattern = r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers"
    return {name: {"registers": int(registers), "spilled": int(stored) + int(loaded)}
            for name, stored, loaded, registers in re.findall(pattern, said.stderr, re.DOTALL)}


def functions(listing):
    """{mangled name: [(labels before it, predicate, operation, operands)]} of what nvdisasm -c says."""
    result, code, labels = {}, None, []
    for line in listing.splitlines():
        if section := re.match(r"\.text\.(\w+):", line):
            code = result.setdefault(section[1], [])
        elif label := re.match(r"(\.L_x_\d+):", line):
            labels.append(label[1])
        elif parts := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@\S+ )?\s*([A-Z0-9_.]+)\s*([^;]*);", line):
            code.append((labels, parts[1] or "", parts[2], parts[3]))
            labels = []
    return result


def natural_loops(code):
    """Sets of indices into code: what can go round through a branch back to a place that all ways there come through."""
    place = {label: i for i, (labels, *_) in enumerate(code) for label in labels}
    # Some jumps are written as calls of a label. BRA.DIV is for lanes of a warp that have parted, as those that shuffle in
    # these kernels do not.
    jumps = {i for i, (_, _, op, _) in enumerate(code) if op.startswith(("BRA", "CALL", "EXIT", "RET"))}
    begins = {0} | set(place.values()) | {i + 1 for i in jumps}
    starts = sorted(i for i in begins if i < len(code))
    stops = starts[1:] + [len(code)]
    block_of = {start: b for b, start in enumerate(starts)}
    following, before = [set() for _ in starts], [set() for _ in starts]
    for b, stop in enumerate(stops):
        _, predicate, op, operands = code[stop - 1]
        branch = re.search(r"\.L_x_\d+", operands)
        if branch and op.startswith(("BRA", "CALL")) and op != "BRA.DIV":
            following[b].add(block_of[place[branch[0]]])
        always = op.startswith(("EXIT", "RET")) or (op.startswith("BRA") and operands.startswith("`"))
        if (predicate or not always) and stop < len(code):
            following[b].add(b + 1)
        for to in following[b]:
            before[to].add(b)
    # A bit a block: those that all ways to it come through.
    dominators = [1] + [-1] * (len(starts) - 1)
    changed = True
    while changed:
        changed = False
        for b in range(1, len(starts)):
            new = -1
            for p in before[b]:
                new &= dominators[p]
            new |= 1 << b
            changed, dominators[b] = changed or new != dominators[b], new
    loops = {}
    for tail, to in enumerate(following):
        for head in to:
            if dominators[tail] < 0 or not dominators[tail] >> head & 1:
                continue
            body, waiting = loops.setdefault(head, {head}), [tail]
            while waiting:
                b = waiting.pop()
                if b not in body and dominators[b] >= 0:  # else no way there is known
                    body.add(b)
                    waiting.extend(before[b])
    return [{i for b in body for i in range(starts[b], stops[b])} for body in loops.values()]


def load_bytes(op):
    """Bytes of a thread's load from global memory, to registers or (LDGSTS) to shared memory; 0: it is none."""
    parts = op.split(".")
    if parts[0] not in ("LDG", "LDGSTS"):
        return 0
    sizes = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((size for part, size in sizes.items() if part in parts), 4)


def in_flight(loop):
    """The most 16-byte loads to registers of a loop that are under way before one of them is used; it goes round."""
    wide = [load_bytes(op) == 16 and not op.startswith("LDGSTS") for _, _, op, _ in loop]
    named = [{int(r) for r in re.findall(r"\bR(\d+)", operands)} for *_, operands in loop]
    first = [re.match(r"R(\d+)", operands) for *_, operands in loop]
    most = 0
    for begin in (i for i, is_wide in enumerate(wide) if is_wide):
        loaded, count = set(), 0
        for i in [*range(begin, len(loop)), *range(begin)]:
            if named[i] & loaded:
                break
            if wide[i]:
                count += 1
                loaded |= {int(first[i][1]) + r for r in range(4)}
        most = max(most, count)
    return most


def look_at(code):
    """The loop's numbers; none of a kernel whose loops load nothing."""
    best = None
    loops = [loop for loop in natural_loops(code) if any(load_bytes(code[i][2]) for i in loop)]
    for loop in loops:
        if any(other < loop for other in loops):
            continue
        body = [code[i] for i in sorted(loop)]
        sizes = [load_bytes(op) for _, _, op, _ in body]
        loaded = 32 * max(sizes) * sizes.count(max(sizes))
        if best is None or (loaded, -len(body)) > (best["bytes"], -best["instructions"]):
            best = {"instructions": len(body), "bytes": loaded, "for_4_kib": round(len(body) * 4096 / loaded),
                    "in_flight": in_flight(body)}
    return best or {}


def waits_first(code):
    """Does a kernel wait for the launch before it (ACQBULK) before it loads or stores anything of the device's memory?"""
    operations = [op.split(".")[0] for _, _, op, _ in code]
    touch = {"LD", "LDG", "LDGSTS", "UBLKCP", "ST", "STG", "ATOM", "ATOMG", "RED"}
    first = next((i for i, op in enumerate(operations) if op in touch), len(operations))
    return "ACQBULK" in operations[:first]


def worse(now, limit):
    """The numbers of a kernel that are worse than they may be, in words."""
    allowed = {"registers": -(-limit["registers"] // 8) * 8, "spilled": limit["spilled"]}
    if "for_4_kib" in now and "for_4_kib" in limit:
        allowed["for_4_kib"] = limit["for_4_kib"] * 1.03
        if now["in_flight"] < limit["in_flight"]:
            yield f"in_flight {now['in_flight']}, was {limit['in_flight']}"
    for column, most in allowed.items():
        if now[column] > most:
            yield f"{column} {now[column]}, was {limit[column]}"


def main():
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cache", type=Path, default=home / "buzz", help="where nvdisasm is kept")
    parser.add_argument("--install", action="store_true", help=f"put {NVDISASM} there")
    parser.add_argument("--processor", action="append", help=f"in place of {', '.join(PROCESSORS)}")
    parser.add_argument("--write", action="store_true", help="today's numbers become the limits")
    options = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/cuda/bin"
    nvcc = shutil.which("nvcc")
    if not nvcc:
        print("skipped: nvcc is absent")
        return 0
    known = re.findall(r"sm_\d+", subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True).stdout)
    nvdisasm = find_nvdisasm(options.cache, options.install)
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    failures = []
    for processor in options.processor or PROCESSORS:
        if processor not in known:
            print(f"skipped: this nvcc knows no {processor}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            cubin = Path(folder) / "kernels.cubin"
            kernels = compile_kernels(nvcc, processor, cubin)
            if nvdisasm:
                listing = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
                for name, code in functions(listing).items():
                    kernels[name].update(look_at(code), waits=waits_first(code))
        plain = subprocess.run(["c++filt"], input="\n".join(kernels), check=True, capture_output=True, text=True).stdout
        named = {re.search(r"run<(.*?) ?>\(", name)[1].replace("buzz::cuda::", ""): numbers
                 for name, numbers in zip(plain.splitlines(), kernels.values())}
        print(f"\n| {processor} | " + " | ".join(COLUMNS) + " |")
        print("|---" * (1 + len(COLUMNS)) + "|")
        for name, numbers in sorted(named.items()):
            print(f"| {name} | " + " | ".join(str(numbers.get(column, "")) for column in COLUMNS) + " |")
            if not numbers.pop("waits", True) and int(processor[3:]) >= 90:
                failures.append(f"{processor}: {name}: touches memory before it has waited for the launch before it")
            for failure in worse(numbers, limits.get(processor, {}).get(name, numbers)):
                failures.append(f"{processor}: {name}: {failure}")
        for name in set(limits.get(processor, {})) - set(named):
            failures.append(f"{processor}: {name}: is gone")
        if options.write:
            limits[processor] = dict(sorted(named.items()))
    if options.write:
        LIMITS.write_text(json.dumps(limits, indent=1) + "\n")
        return 0
    for failure in failures:
        print(f"WORSE: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
