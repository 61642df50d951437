#!/bin/bash
# Fuzzes for some seconds each: tests/fuzz/run.sh [SECONDS [TARGET ...]], with libFuzzer and sanitizers where clang has them.
# A finding stays in build/fuzz/findings, and the exit code is not 0.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
targets=("${@:-config_fuzz}")
declare -A corpus=([config_fuzz]="tests/zero/golden examples")

build=build/fuzz
if ! command -v clang++ >/dev/null; then
  echo "tests/fuzz/run.sh: no clang++: nothing fuzzed (the tests replay damaged files with any compiler)" >&2
  exit 77
fi
CXX=clang++ CC=clang cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRINGZERO_FUZZ=ON \
  -DRINGZERO_WITH_TORCH=OFF -DRINGZERO_WITH_UCX=OFF -DRINGZERO_WITH_CUDA=OFF -DRINGZERO_WITH_NCCL=OFF >/dev/null
cmake --build $build -j 2 --target "${targets[@]}"
for target in "${targets[@]}"; do
  mkdir -p $build/corpus/$target $build/findings
  # shellcheck disable=SC2046,SC2086
  cp -n $(find ${corpus[$target]} -type f -size -64k) $build/corpus/$target/ 2>/dev/null || true
  $build/tests/fuzz/$target -max_total_time=$seconds -max_len=20000 -timeout=5 -rss_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix=$build/findings/ $build/corpus/$target
done
