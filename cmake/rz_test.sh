# ./rz test: builds and runs the tests. Sourced by ./rz, which sets $root.
#
# Every day: all everyday entries, a sample of them under each sanitizer. --full: everything, in five parts that can run apart:
#   1  the cases of all rooms, all combinations, and     4  ThreadSanitizer: all that is free of LibTorch
#      each header compiled alone                        5  AddressSanitizer with LibTorch, and every fuzz target for a minute
#   2  the programs as users run them, clang-tidy, and
#      everything built on another distribution's layout
#   3  AddressSanitizer: all that is free of LibTorch
# No two parts run tests of one build folder, which keeps the results of its last run alone.

# run_tests PRESET [ctest arguments...]: results go into build/PRESET/test-results; a failed test is counted later.
run_tests() {
  local folder=$root/build/$1 preset=$1 prefix=()
  shift
  rm -rf "$folder/test-results"
  mkdir -p "$folder/test-results"
  # ThreadSanitizer of GCC 12 stops on kernels that randomise addresses widely.
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then prefix=(setarch -R); fi
  say "running the tests of build/$preset"
  # The tests of the program wait for processes more than they compute.
  local jobs
  jobs=$(nproc)
  [ "$preset" != release ] || jobs=$((jobs + 1))
  ctest --test-dir "$folder" --show-only=json-v1 >"$folder/test-results/entries.json"
  RINGZERO_TEST_SEED=$(commit_seed) "${prefix[@]}" ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$jobs" \
    --output-junit "$folder/test-results/ctest.xml" "$@" >&2 || true
  tested+=("$folder")
}

# test_preset PRESET TESTS [ctest arguments...]: builds what carries these labels (RINGZERO_TESTS; empty: the preset's), and runs it.
test_preset() {
  local preset=$1 tests=$2
  shift 2
  RINGZERO_TESTS=$tests build "$preset" ringzero_tests
  finish_python
  run_tests "$preset" "$@"
}

# The number of the commit: where a few of many are drawn, each commit has others.
commit_seed() {
  local seed
  seed=$(git -C "$root" rev-parse --short=8 HEAD 2>/dev/null) || seed=0
  echo "${RINGZERO_TEST_SEED:-$((16#$seed))}"
}

# check_headers SHARE: compiles headers that need no LibTorch, each alone, so that they include what they use: one in SHARE.
check_headers() {
  local objects
  configure test
  ninja -C "$root/build/test" build.ninja >&2  # a header may have moved since
  mapfile -t objects < <(ninja -C "$root/build/test" -t targets all |
    sed -n 's/^\(.*_verify_interface_header_sets.*\.o\): .*/\1/p' | sort | awk -v share="$1" -v seed="$(commit_seed)" 'NR % share == seed % share')
  [ ${#objects[@]} -gt 0 ] || die "build/test has no headers to compile alone"
  build test "${objects[@]}"
}

# Each target is counted as one test, passed, failed or skipped.
run_fuzz_targets() {
  local results=$root/build/fuzz/test-results
  rm -rf "$results"
  (install_packages fuzz) || say "going on without clang's packages"
  say "fuzzing for 60 s"
  "$root/tests/fuzz/run.sh" 60 >&2 || true  # what failed is counted
  [ -e "$results/ctest.xml" ] || die "the fuzz targets could not be built: the first 'error:' above says why"
  tested+=("$root/build/fuzz")
}

test_everyday() {
  install_all build test data
  find_python
  test_preset release "" -LE '^full$'
  local rooms='all;-program;-torch'
  [ -z "${RINGZERO_CHECK_HEADERS:-}" ] || RINGZERO_TESTS=$rooms check_headers 5
  test_preset test "$rooms" -LE '^full$'
  test_preset asan address-sample
  test_preset tsan thread-sample
}

test_part() {
  case $1 in
    1)
      check_headers 1
      test_preset test ""
      ;;
    2) test_preset release "" ;;
    3) test_preset asan "" ;;
    4) test_preset tsan "" ;;
    5)
      test_preset asan-torch ""
      run_fuzz_targets
      ;;
  esac
}

command_test() {
  local full= parts=(1 2 3 4 5)
  while [ $# -gt 0 ]; do
    case $1 in
      --full) full=1 ;;
      --part)
        [[ ${2:-} =~ ^[1-5]/5$ ]] || usage_error "test: --part takes 1/5, 2/5, 3/5, 4/5 or 5/5, found '${2:-}'"
        parts=("${2%/5}")
        shift
        ;;
      *) usage_error "test: unknown argument '$1'" ;;
    esac
    shift
  done
  [ -n "$full" ] || [ ${#parts[@]} = 5 ] || usage_error "test: --part goes with --full"
  tested=()
  if [ -z "$full" ]; then
    test_everyday
  else
    export RINGZERO_TEST_FULL=1
    install_all build test data full
    find_python
    local part
    for part in "${parts[@]}"; do test_part "$part"; done
  fi
  [ -z "${CCACHE_STATSLOG:-}" ] || ! command -v ccache >/dev/null || ccache --show-log-stats >&2
  python3 "$root/cmake/count_tests.py" "${tested[@]}"
}
