#!/usr/bin/env bash
# bench/cuda/verify.sh with programs that only say how they end: verify_test.sh FOLDER, to work in.
set -euo pipefail
verify=$(dirname "$0")/../../bench/cuda/verify.sh
verify=$(realpath "$verify")
mkdir -p "$1"
folder=$(mktemp -d "$(realpath "$1")/verify.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{programs,results,out}
export BUZZ_VERIFY_PROGRAMS=$folder/programs BUZZ_VERIFY_OUT=$folder/results OUT=$folder/out

program() {  # NAME BODY
  printf '#!/bin/sh\n%s\n' "$2" > "$folder/programs/$1"
  chmod +x "$folder/programs/$1"
}
run() {  # the exit status that is expected
  local rc=0
  bash "$verify" > "$folder/said" 2>&1 || rc=$?
  [ $rc -eq "$1" ] || { echo "ended with $rc, expected $1:"; cat "$folder/said"; exit 1; }
}
expect() {  # FILE TEXT
  grep -qF -- "$2" "$1" || { echo "'$2' is not in $1:"; cat "$1"; exit 1; }
}
none() {  # FILE TEXT
  ! grep -qF -- "$2" "$1" || { echo "'$2' is in $1:"; cat "$1"; exit 1; }
}

# A step that fails stops none after it, and the end is 1. What is the caller's stays.
echo mine > "$OUT/summary.txt"
program device_test 'echo "A card, 3 multiprocessors"; echo "seed $1"'
program cuda_decode 'echo done'
program cuda_bench 'echo "ran $*"; [ "$*" = "attend 4096" ] && echo broken >&2 && exit 3; exit 0'
run 1
for where in "$BUZZ_VERIFY_OUT/summary.txt" "$OUT/buzz-verify-summary.txt"; do
  expect "$where" 'A card, 3 multiprocessors'
  expect "$where" 'device_test: passed'
  expect "$where" 'attend-564: passed'
  expect "$where" 'attend-4096: FAILED with 3'
  expect "$where" ': broken'
  for step in attend-32768 decode eviction prefill example; do expect "$where" "$step: passed"; done
  expect "$where" 'SOME STEPS FAILED'
done
expect "$BUZZ_VERIFY_OUT/prefill.txt" 'ran prefill'
expect "$OUT/buzz-verify-steps.txt" 'ran attend 32768'
expect "$BUZZ_VERIFY_OUT/device_test.txt" 'seed 1'
expect "$OUT/summary.txt" mine
[ "$(ls "$OUT" | wc -l)" -eq 3 ] || { ls "$OUT"; exit 1; }

# Without OUT, and with all that runs passing.
program cuda_bench 'echo "ran $*"'
unset OUT
run 0
expect "$BUZZ_VERIFY_OUT/summary.txt" 'no step failed'
none "$BUZZ_VERIFY_OUT/summary.txt" FAILED

# The device tests' own failure.
program device_test 'echo "A card"; echo "2 differences"; exit 1'
run 1
expect "$BUZZ_VERIFY_OUT/summary.txt" 'device_test: FAILED with 1'
expect "$BUZZ_VERIFY_OUT/summary.txt" '2 differences'
expect "$BUZZ_VERIFY_OUT/summary.txt" 'eviction: passed'

# Without a GPU nothing more is run or claimed; where there is one that the runtime does not find, that is a failure.
program device_test 'echo "No GPU here: nothing was run."; exit 77'
if compgen -G '/dev/nvidia[0-9]*' > /dev/null; then run 1; else run 0; fi
expect "$folder/said" 'No GPU here'
none "$folder/said" passed

# Nothing to run, and no compiler to make it with.
rm "$folder/programs/cuda_bench"
if ! PATH=$PATH:/usr/local/cuda/bin command -v nvcc > /dev/null; then
  run 1
  expect "$folder/said" 'verify.sh build'
fi
