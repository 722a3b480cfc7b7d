#!/usr/bin/env python3
"""The table of goals, and PyTorch beside it: compare.py FILE..., where FILEs are what cuda_bench printed.

Where torch and its GPU are there, each backend of scaled_dot_product_attention is timed by the same rules, by its name:
a captured graph over as many input sets, the median; in a process of its own. It gives no column sums. Without torch
those rows say so.
"""
import json
import statistics
import sys

QUERY_HEADS, KV_HEADS, DIM = 32, 8, 128
BACKENDS = ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"]


def sdpa(torch, backend, batch, rows):
    """Median microseconds of one decode step's attention in half; None where the backend refuses it."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sets = min(128, int(512e6 / (4 * KV_HEADS * DIM * batch * rows)) + 1)
    make = lambda heads, n: torch.randn(batch, heads, n, DIM, device="cuda", dtype=torch.half)
    inputs = [(make(QUERY_HEADS, 1), make(KV_HEADS, rows), make(KV_HEADS, rows)) for _ in range(sets)]

    def attend():
        with sdpa_kernel(getattr(SDPBackend, backend)):
            for q, k, v in inputs:
                torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    try:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            attend()  # what is made at the first call is made before the capture
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            attend()
    except (RuntimeError, AttributeError, TypeError):
        return None
    times = []
    for i in range(33):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1000 / sets)
    return statistics.median(times)


def find_torch():
    """The module, or None and why not."""
    try:
        import torch
    except ImportError:
        return None, "no torch"
    return (torch, "") if torch.cuda.is_available() else (None, "torch sees no GPU")


def main():
    ours = {}
    for name in sys.argv[1:]:
        with open(name) as lines:
            for line in lines:
                if line.startswith("{"):
                    row = json.loads(line)
                    ours[row["name"], row["batch"], row["rows"]] = row
    print("| figure | measured | goal | |")
    print("|---|---|---|---|")

    def add(what, value, goal=None, at_least=False, missing="not measured"):
        met = "" if goal is None or value is None else "met" if (value >= goal if at_least else value <= goal) else "NOT MET"
        said = "" if goal is None else f"{'>=' if at_least else '<='} {goal}"
        print(f"| {what} | {missing if value is None else f'{value:.3g}'} | {said} | {met} |", flush=True)

    def our(name, batch, rows, column="us"):
        return ours.get((name, batch, rows), {}).get(column)

    def ratio(a, b):
        return None if a is None or b is None else a / b

    cases = sorted({(rows, batch) for name, batch, rows in ours if name == "attention"})
    for rows, batch in cases:
        goal = 0.85 if (batch, rows) in [(32, 4096), (64, 32768)] else None
        add(f"rate of attention with sums over a copy's, {batch} x {rows}", our("attention with sums", batch, rows, "of_copy"),
            goal, True)
        add(f"the same over a read's, {batch} x {rows}", our("attention with sums", batch, rows, "of_read"))
    for rows, batch in cases:
        add(f"time with sums over without, {batch} x {rows}",
            ratio(our("attention with sums", batch, rows), our("attention", batch, rows)), 1.05)
    add("us of append, attend and observe in a graph, 1 x 564", our("step", 1, 564), 10)
    add("the same with the eviction's kernels, none happening", our("step with no eviction", 1, 564), 10)
    for batch in (1, 32):
        add(f"us of an eviction of 565 rows of 32 heads, batch {batch}", our("eviction", batch, 565))
        add(f"rate of an eviction over a copy's of the rows that move, batch {batch}", our("eviction", batch, 565, "of_copy"))
    for rows in (512, 4096, 32768):
        add(f"TFLOP/s of 512 queries with sums, {rows} rows", our("prefill with sums", 1, rows, "tflops"))

    torch, why_not = find_torch()
    for rows, batch in cases:
        for backend in BACKENDS:
            theirs = sdpa(torch, backend, batch, rows) if torch else None
            add(f"time with sums over SDPA's {backend}, {batch} x {rows}",
                ratio(our("attention with sums", batch, rows), theirs), 1.0, missing=why_not or "refused by it")


if __name__ == "__main__":
    main()
