#!/usr/bin/env bash
# Are the kernels right, and how fast are they? A whole answer in one run of at most 8 minutes, on a machine that has a GPU
# and its driver: the programs come along.
#
#     bench/cuda/verify.sh build   makes them, with nvcc, g++ and Eigen's headers (EIGEN, /usr/include/eigen3), for ARCH
#                                  (sm_90), in BUZZ_VERIFY_PROGRAMS (build/cuda); no GPU is needed
#     bench/cuda/verify.sh         runs them; makes them first where they are missing and nvcc is there
#
# Steps come in the order of their worth. Each has a time limit and leaves BUZZ_VERIFY_OUT/STEP.txt (build/cuda/results), and
# a line in summary.txt there when it has ended; the next one follows whatever came of it. The end is 1 where one has failed.
# OUT, where the caller has set it, is a folder of the caller's: after each step it gets buzz-verify-summary.txt and
# buzz-verify-steps.txt, all steps' outputs, and nothing else in it is touched. Without a GPU nothing is run and nothing
# claimed, and the end is 0.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
programs=${BUZZ_VERIFY_PROGRAMS:-build/cuda}
results=${BUZZ_VERIFY_OUT:-$programs/results}
mkdir -p "$programs" || exit 1

build() {
  local eigen=${EIGEN:-/usr/include/eigen3} arch=${ARCH:-sm_90} pids=() pid
  make_program() {  # NAME SOURCE...
    nvcc -O3 -std=c++17 -arch="$arch" -cudart static -lineinfo -Iinclude "${@:2}" -o "$programs/$1" || return 1
    strip "$programs/$1"
  }
  g++ -O2 -std=c++17 -Iinclude -isystem "$eigen" -c tests/cuda/host.cpp -o "$programs/host.o" || return 1
  make_program device_test tests/cuda/device_test.cu "$programs/host.o" & pids+=($!)
  make_program cuda_bench bench/cuda/cuda_bench.cu & pids+=($!)
  make_program cuda_decode examples/cuda_decode.cu & pids+=($!)
  local failed=0
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  rm -f "$programs/host.o"
  return $failed
}

complete() { [ -x "$programs/device_test" ] && [ -x "$programs/cuda_bench" ] && [ -x "$programs/cuda_decode" ]; }
PATH=$PATH:/usr/local/cuda/bin
if [ "${1:-}" = build ] || { ! complete && command -v nvcc > /dev/null; }; then
  build || { echo "The programs could not be made."; exit 1; }
  echo "made in $programs in $SECONDS s: $(du -ch "$programs"/{device_test,cuda_bench,cuda_decode} | tail -n 1 | cut -f 1)"
  [ "${1:-}" = build ] && exit 0
fi
complete || { echo "There are no programs in $programs, and no nvcc: run bench/cuda/verify.sh build elsewhere."; exit 1; }

failed=0
begun=$SECONDS
steps=()
mkdir -p "$results" || exit 1
: > "$results/summary.txt"

say() {
  echo "$*" | tee -a "$results/summary.txt"
  [ -n "${OUT:-}" ] && [ -d "$OUT" ] || return 0
  cp "$results/summary.txt" "$OUT/buzz-verify-summary.txt"
  tail -n +1 -- "${steps[@]}" > "$OUT/buzz-verify-steps.txt"
}
run() {  # NAME SECONDS COMMAND...: into NAME.txt; rc: how it ended; took: seconds
  local begin=$SECONDS
  rc=0
  steps+=("$results/$1.txt")
  timeout -k 2 "$2" "${@:3}" > "$results/$1.txt" 2>&1 || rc=$?
  took=$((SECONDS - begin))
}
report() {  # NAME SECONDS: of what has run
  case $rc in
    0) say "$1: passed, $took s" ;;
    124 | 137) failed=1; say "$1: FAILED, not done after $2 s" ;;
    *) failed=1; say "$1: FAILED with $rc, $took s: $(tail -n 1 "$results/$1.txt")" ;;
  esac
}
step() { run "$@"; report "$1" "$2"; }
# Fails by what the sanitizer finds alone: it may be too slow, or not be able to work here.
sanitize() {  # TOOL SECONDS
  command -v compute-sanitizer > /dev/null || { say "$1: not run, compute-sanitizer is absent"; return; }
  run "$1" "$2" compute-sanitizer --tool "$1" --error-exitcode 99 "$programs/device_test" 1 short
  case $rc in
    0) say "$1: passed, $took s" ;;
    99) failed=1; say "$1: FAILED, $took s: $(tail -n 1 "$results/$1.txt")" ;;
    *) say "$1: not done, ended with $rc after $took s: $(tail -n 1 "$results/$1.txt")" ;;
  esac
}

# Limits add up to 456 s.
run device_test 80 "$programs/device_test" 1
if [ $rc -eq 77 ]; then
  cat "$results/device_test.txt"
  compgen -G '/dev/nvidia[0-9]*' > /dev/null || exit 0
  say "device_test: FAILED: this machine has a GPU, which the CUDA runtime does not find"
  exit 1
fi
say "$(head -n 1 "$results/device_test.txt"); $(git rev-parse --short HEAD 2> /dev/null || echo 'no git')"
report device_test 80
for rows in 564 4096 32768; do step "attend-$rows" $((30 + rows / 1024)) "$programs/cuda_bench" attend "$rows"; done
step decode 15 "$programs/cuda_bench" decode
step eviction 25 "$programs/cuda_bench" eviction
step prefill 35 "$programs/cuda_bench" prefill
step example 10 "$programs/cuda_decode"
if command -v python3 > /dev/null; then
  step compare 45 python3 bench/cuda/compare.py "$results"/{attend-*,decode,eviction,prefill}.txt
  cat "$results/compare.txt"
else
  say "compare: not run, python3 is absent: no table of goals, and nothing of PyTorch's"
fi
sanitize memcheck 60
sanitize racecheck 60
say "$((SECONDS - begun)) s in all: $([ $failed -eq 0 ] && echo 'no step failed' || echo 'SOME STEPS FAILED')"
exit $failed
