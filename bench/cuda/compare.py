#!/usr/bin/env python3
"""The table of goals: compare.py FILE, where FILE is what buzz-cuda-bench printed.

Where torch and its GPU are there, scaled_dot_product_attention is timed in the same run, by the same rules: CUDA
events, several input sets in rotation, the median. It gives no column sums. Without torch those rows say so.
"""
import json
import statistics
import sys

QUERY_HEADS, KV_HEADS, DIM = 32, 8, 128
CASES = [(batch, rows) for batch in (1, 32) for rows in (564, 4096, 32768)]


def sdpa(batch, rows):
    """Median microseconds of one decode step's attention in half; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    attend = torch.nn.functional.scaled_dot_product_attention
    sets = min(64, max(2, int(256e6 / (4 * KV_HEADS * DIM * batch * rows)) + 1))
    make = lambda heads, n: torch.randn(batch, heads, n, DIM, device="cuda", dtype=torch.half)
    inputs = [(make(QUERY_HEADS, 1), make(KV_HEADS, rows), make(KV_HEADS, rows)) for _ in range(sets)]
    times = []
    for i in range(35):
        q, k, v = inputs[i % sets]
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        attend(q, k, v, enable_gqa=True)
        end.record()
        end.synchronize()
        if i >= 5:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def main():
    ours = {}
    with open(sys.argv[1]) as lines:
        for line in lines:
            if line.startswith("{"):
                row = json.loads(line)
                ours[row["name"], row["batch"], row["rows"]] = row["value"]
    copy = ours["copy, GB/s", 0, 0]
    table = []

    def add(number, what, value, goal, at_least=False):
        met = "?" if value is None else "met" if (value >= goal if at_least else value <= goal) else "NOT MET"
        table.append((number, what, "no torch" if value is None else f"{value:.3g}", f"{'>=' if at_least else '<='} {goal}", met))

    time = ours["attention with sums, us", 32, 4096]
    read = 4 * KV_HEADS * DIM * 32 * 4096
    add(1, "bytes a second of attention with sums over the copy's, batch 32, 4096 rows", read / time / 1000 / copy, 0.85, True)
    for batch, rows in CASES:
        theirs = sdpa(batch, rows)
        ratio = None if theirs is None else ours["attention with sums, us", batch, rows] / theirs
        add(2, f"time over SDPA's, batch {batch}, {rows} rows", ratio, 0.5 if (batch, rows) == (1, 564) else 1.0)
    for batch, rows in CASES:
        ratio = ours["attention with sums, us", batch, rows] / ours["attention, us", batch, rows]
        add(3, f"with sums over without, batch {batch}, {rows} rows", ratio, 1.05)
    add(4, "us of an eviction, 32 heads, 565 to 246 rows", ours["eviction, us", 1, 565], 15)
    # Of 565 rows the 160 of the window and 80 or so of the chunks move; K and V are read and written.
    moved = 2 * 2 * 2 * DIM * 32 * 242 * 32
    add(4, "the same, batch 32: bytes a second over the copy's", moved / ours["eviction, us", 32, 565] / 1000 / copy, 0.7, True)
    add(5, "us of append + attend + observe in a graph, 564 rows", ours["step, us", 1, 564], 15)
    add("", "the same with the eviction's kernels, none happening", ours["step with no eviction, us", 1, 564], 15)
    # 6 is by construction: buzz_cache.cuh calls neither an allocation nor a synchronisation.
    add(6, "host synchronisations and allocations a token (by construction)", 0, 0)

    print("| # | figure | measured | goal | |")
    print("|---|---|---|---|---|")
    for row in table:
        print("| " + " | ".join(str(cell) for cell in row) + " |")


if __name__ == "__main__":
    main()
