#!/usr/bin/env bash
# Fuzzes with libFuzzer under AddressSanitizer and UBSan: tests/fuzz/run.sh [SECONDS [TARGET ...]], at most four targets at a
# time. A line for each says how much ran. A finding stays in build/fuzz/findings, and the exit code is 1; 77: there is no clang
# with libFuzzer here, nothing ran. Results for cmake/count_tests.py lie in build/fuzz/test-results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-60}
shift || true
build=build/fuzz
mapfile -t known < <(awk '/^[a-z]/ {print $1}' tests/fuzz/corpora.txt)
targets=("${@:-${known[@]}}")
mkdir -p $build/findings $build/logs $build/test-results

# write_results NAME=RESULT...: as ctest --output-junit does, where RESULT is run, fail or skipped.
write_results() {
  echo '{"tests": []}' >$build/test-results/entries.json
  {
    echo '<testsuite>'
    local pair
    for pair in "$@"; do
      echo "<testcase name=\"${pair%=*}\" status=\"${pair#*=}\">"
      [ "${pair#*=}" != skipped ] || echo '<skipped message="SKIP_NO_LIBFUZZER"/>'
      echo '</testcase>'
    done
    echo '</testsuite>'
  } >$build/test-results/ctest.xml
}

has_libfuzzer() {
  command -v clang++ >/dev/null &&
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    clang++ -x c++ -fsanitize=fuzzer,address,undefined - -o $build/probe 2>$build/logs/probe.log
}

# say_totals TARGET: what libFuzzer's log says of its run.
say_totals() {
  awk -v target="$1" '
    / cov: / {for (i = 1; i < NF; ++i) {if ($i == "cov:") cov = $(i + 1); if ($i == "ft:") ft = $(i + 1)}}
    /^Done / {runs = $2; time = $5}
    /^stat::peak_rss_mb/ {rss = $2}
    END {
      if (runs == "") print target ": did not end well";
      else printf "%s: %d executions in %d s, %d edges and %d features covered, %d MiB\n", target, runs, time, cov, ft, rss
    }' "$build/logs/$1.log"
}

# fuzz TARGET
fuzz() {
  local target=$1 corpus=$build/corpus/$1 limits=(-max_total_time="$seconds")
  # By number here: a million in place of a minute, in at most ten times as long.
  [ "$target" != checkpoint_fuzz ] || limits=(-runs=$((seconds * 17000)) -max_total_time=$((seconds * 10)))
  mkdir -p "$corpus"
  # shellcheck disable=SC2046
  find $(awk -v target="$target" '$1 == target {$1 = ""; print}' tests/fuzz/corpora.txt) -type f -size -64k \
    -exec cp -n {} "$corpus/" ';'
  $build/tests/fuzz/"$target" "${limits[@]}" -max_len=20000 -timeout=25 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix=$build/findings/ "$corpus" >"$build/logs/$target.log" 2>&1
}

if ! has_libfuzzer; then
  echo "fuzzing SKIPPED: no clang++ with libFuzzer (Debian: clang, libclang-rt-dev)" >&2
  write_results "${targets[@]/%/=skipped}"
  exit 77
fi
CXX=clang++ CC=clang cmake -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRINGZERO_FUZZ=ON \
  -DRINGZERO_UNITY=ON -DRINGZERO_OPTIMIZATION=-O1 -DRINGZERO_SYMBOLS=-g1 \
  -DRINGZERO_WITH_TORCH=OFF -DRINGZERO_WITH_UCX=OFF -DRINGZERO_WITH_CUDA=OFF -DRINGZERO_WITH_NCCL=OFF >$build/logs/configure.log
cmake --build $build -j "${CMAKE_BUILD_PARALLEL_LEVEL:-2}" --target "${targets[@]}"

results=()
for ((first = 0; first < ${#targets[@]}; first += 4)); do
  declare -A running=()
  for target in "${targets[@]:first:4}"; do
    fuzz "$target" &
    running[$target]=$!
  done
  for target in "${targets[@]:first:4}"; do
    result=run
    wait "${running[$target]}" || result=fail
    results+=("$target=$result")
    say_totals "$target"
    [ $result = run ] || tail -n 40 "$build/logs/$target.log"
  done
done
write_results "${results[@]}"
[[ ${results[*]} != *=fail* ]]
