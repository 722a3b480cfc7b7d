#!/usr/bin/env bash
# On a machine with a GPU: builds for it, runs the device tests, compute-sanitizer on a short one, and the benchmark, and
# ends with the table of goals. About six minutes. It needs nvcc (or OUT from `verify.sh build`), g++ and Eigen's
# headers (EIGEN=folder, /usr/include/eigen3 by default); python3 for the table, torch for its SDPA rows.
#
#     bench/cuda/verify.sh         builds into OUT (build/cuda by default) what is not there yet, and runs
#     bench/cuda/verify.sh build   only builds, as a machine without a GPU can do
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/cuda}
eigen=${EIGEN:-/usr/include/eigen3}
arch=${ARCH:-sm_90}
PATH=$PATH:/usr/local/cuda/bin
mkdir -p "$out"

build() {  # NAME SOURCE...
  local name=$1
  shift
  [ -x "$out/$name" ] && return
  nvcc -O3 -std=c++17 -arch="$arch" -lineinfo -Iinclude "$@" -o "$out/$name" &
  pids+=($!)
}
pids=()
[ -f "$out/host.o" ] || g++ -O2 -std=c++17 -Iinclude -isystem "$eigen" -c tests/cuda/host.cpp -o "$out/host.o"
build device_test tests/cuda/device_test.cu "$out/host.o"
build cuda_bench bench/cuda/cuda_bench.cu
build cuda_decode examples/cuda_decode.cu
for pid in "${pids[@]}"; do wait "$pid"; done
echo "built in $SECONDS s"
[ "${1:-}" = build ] && exit 0

rc=0
"$out/device_test" || rc=$?
if [ $rc -eq 77 ]; then
  echo "No GPU: the device tests and the benchmark have not run, and nothing was measured."
  exit 0
fi
failed=$rc
"$out/cuda_decode" || failed=1
if command -v compute-sanitizer > /dev/null; then
  for tool in memcheck racecheck; do
    timeout 60 compute-sanitizer --tool "$tool" --error-exitcode 1 "$out/device_test" 1 short || {
      rc=$?
      [ $rc -eq 124 ] && echo "$tool: not done after 60 s" || failed=1
    }
  done
else
  echo "compute-sanitizer is absent: neither memcheck nor racecheck has run"
fi
timeout 120 "$out/cuda_bench" | tee "$out/bench.jsonl"
python3 bench/cuda/compare.py "$out/bench.jsonl"
echo "$SECONDS s in all; tests $([ $failed -eq 0 ] && echo passed || echo FAILED)"
exit $failed
