# Configures and builds a preset. Sourced by ./rz, which sets $root.

# How many compilers at once: one per core, and 2 GiB of memory for each (LibTorch's headers are large).
jobs_at_once() {
  local cores memory_gib
  cores=$(nproc)
  memory_gib=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local jobs=$((memory_gib / 2 < cores ? memory_gib / 2 : cores))
  echo "${CMAKE_BUILD_PARALLEL_LEVEL:-$((jobs < 1 ? 1 : jobs))}"
}

# configure PRESET: only when something that it depends on has changed; ninja itself sees changed CMakeLists.txt files.
# RINGZERO_WERROR and RINGZERO_TESTS of the environment are passed on.
configure() {
  local folder=$root/build/$1 arguments=(--preset "$1") option
  case $1 in
    release | test | dev | asan-torch) arguments+=(-DRINGZERO_WITH_TORCH=ON) ;;
  esac
  # Once the package has been built here, this stays so.
  local python=${package_python:-$(cat "$folder/.rz-python" 2>/dev/null)}
  [ "$1" = release ] && [ -x "$python" ] || python=
  arguments+=("-DRINGZERO_WITH_PYTHON=$([ -n "$python" ] && echo ON || echo OFF)")
  [ -z "$python" ] || arguments+=("-DPython_EXECUTABLE=$python")
  [ ! -e "$deps/site/libucx/include/ucp/api/ucp.h" ] || arguments+=(-DRINGZERO_WITH_UCX=ON)
  for option in RINGZERO_WERROR RINGZERO_TESTS; do
    [ -z "${!option:-}" ] || arguments+=("-D$option=${!option}")
  done
  local key="${arguments[*]} ${CXX:-} ${CMAKE_PREFIX_PATH:-} $(command -v ccache mold | tr '\n' ' ') $(wheels_key)"
  if [ -e "$folder/build.ninja" ] && [ "$(cat "$folder/.rz-key" 2>/dev/null)" = "$key" ]; then return; fi
  check_tools
  say "configuring build/$1"
  rm -f "$folder/.rz-key"
  (cd "$root" && cmake "${arguments[@]}" -URINGZERO_TORCH_INCLUDE_DIR -URINGZERO_UCX_INCLUDE_DIR) >&2 ||
    fail_build "the configure step of build/$1 failed: the first 'CMake Error' above says why"
  printf '%s' "$key" >"$folder/.rz-key"
  printf '%s' "$python" >"$folder/.rz-python"
}

# build PRESET [TARGET...]
build() {
  local preset=$1 what
  shift
  what="building build/$preset${*:+ ($*)}"
  [ $# -lt 4 ] || what="building build/$preset ($# files)"
  mkdir -p "$root/build"
  (
    flock -n 9 || { say "waiting for another ./rz that is building here" && flock 9; }
    configure "$preset"
    NINJA_STATUS='@%f %t ' cmake --build "$root/build/$preset" -j "$(jobs_at_once)" ${*:+--target "$@"} 2>&1 9>&- |
      show_steps "$what" ||
      fail_build "building build/$preset failed: the first 'error:' above says why"
  ) 9>"$root/build/.lock"
}

# show_steps WHAT: of ninja's output (NINJA_STATUS as above) the steps become one line of progress; what compilers say is passed on.
show_steps() {
  local start=$SECONDS line done=0 steps=0
  while IFS= read -r line; do
    if [[ $line =~ ^@([0-9]+)\ ([0-9]+)\  ]]; then
      done=${BASH_REMATCH[1]} steps=${BASH_REMATCH[2]}
      progress "$1: $done of $steps steps, $(time_left "$start" "$done" "$steps")"
    elif [[ $line != "ninja: no work to do"* ]]; then
      clear_progress
      printf '%s\n' "$line" >&2
    fi
  done
  [ "$steps" = 0 ] || end_progress "$1: $done of $steps steps, $((SECONDS - start)) s"
}

fail_build() {
  [ "$(free_mib "$root")" -ge 200 ] ||
    die "no space left: only $(free_mib "$root") MiB are free in $root. Free about 4 GiB and run the command again"
  die "$1"
}
