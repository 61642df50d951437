# Installs what is missing: Debian packages with apt-get, pinned wheels into .deps/site. Sourced by ./rz, which sets $root.
# A second call finds all in place, asks no network and takes milliseconds.

deps=$root/.deps
needed_mib=4096  # wheels while they are unpacked, and the build
wheels_mib=1950  # downloaded and unpacked

say() { echo "rz: $*" >&2; }
die() {
  echo "rz: error: $*" >&2
  exit 1
}

# One line of progress: on a terminal it is written over; elsewhere one comes every 20 seconds.
progress() {
  if [ -t 2 ]; then
    printf '\r\033[Krz: %s' "$*" >&2
  elif [ -z "${progress_at:-}" ] || [ $((SECONDS - progress_at)) -ge 20 ]; then
    progress_at=$SECONDS
    say "$*"
  fi
}
# clear_progress: makes room for other words.
clear_progress() { [ ! -t 2 ] || printf '\r\033[K' >&2; }
end_progress() {
  clear_progress
  progress_at=
  say "$*"
}

# time_left START DONE ALL: "12 s, about 40 s left", for work that goes on as it did since START.
time_left() {
  local gone=$((SECONDS - $1))
  if [ $gone -lt 3 ] || [ "$2" -eq 0 ] || [ "$2" -ge "$3" ]; then
    echo "$gone s"
  else
    echo "$gone s, about $((gone * ($3 - $2) / $2)) s left"
  fi
}

free_mib() { df -Pk "$1" | awk 'NR == 2 {print int($4 / 1024)}'; }

# install_all GROUP...: the packages of these groups, and the wheels.
install_all() {
  install_packages "$@"
  install_wheels
}

# fail_install LOG WHAT: one error line for what the log shows, after its tail.
fail_install() {
  tail -n 15 "$1" | sed 's/^/  | /' >&2
  if grep -qiE 'no space left|enough free space|Errno 28|disk quota' "$1"; then
    die "no space left while $2 (log: $1). Free about $((needed_mib / 1024)) GiB and run the command again"
  elif grep -qiE 'resolv|network is unreachable|could not connect|cannot initiate the connection|failed to establish|connection (timed out|refused|reset)|timed out|ProxyError|NewConnectionError|NameResolutionError|No route to host|Failed to fetch' "$1"; then
    die "no network while $2 (log: $1). Connect (or set https_proxy) and run the command again; once installed, no network is needed"
  elif grep -q 'dpkg was interrupted' "$1"; then
    die "an earlier installation on this machine was interrupted. As root, run: dpkg --configure -a"
  elif grep -q 'DO NOT MATCH THE HASHES' "$1"; then
    die "a downloaded wheel is not the pinned one (log: $1). Look for a proxy or mirror that changes files; nothing was installed"
  elif grep -qE 'Unable to locate package|has no installation candidate' "$1"; then
    die "this release of the system lacks a package (log: $1). Take Debian 12 or newer, or install it by hand"
  elif grep -qE 'No matching distribution|is not a supported wheel' "$1"; then
    die "there is no pinned wheel for this machine ($(uname -m)) (log: $1). Set CMAKE_PREFIX_PATH to a LibTorch of your own"
  elif grep -qE 'password is required|not in the sudoers|may not run sudo' "$1"; then
    die "sudo was refused while $2 (log: $1). Run the command once as root, or have those packages installed"
  fi
  die "$2 failed (log: $1)"
}

# The packages of the given groups, from the one list.
packages_of() { awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") {print $2}' "$root/cmake/debian-packages.txt"; }

missing_packages() {
  local wanted
  wanted=$(packages_of "$@")
  # dpkg-query knows a removed package too, so its state is asked for; and virtual names by what provides them.
  comm -23 <(sort -u <<<"$wanted") \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | awk '$1 == "installed" {print $2}' | sort -u)
}

install_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    [ -e "$root/build/release/build.ninja" ] ||
      say "this is not a Debian system: going on with the tools that are here; needed is what Debian calls" $(packages_of "$@")
    return
  fi
  local missing
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "packages are missing and neither root nor sudo is here: as root, run: apt-get install" $missing
    as_root=(sudo)
  fi
  [ "$(free_mib /var/cache)" -ge 1024 ] ||
    die "no space for Debian packages: $(free_mib /var/cache) MiB are free in /var, about 1 GiB is needed. Free some and run the command again"
  mkdir -p "$deps/log"
  local log=$deps/log/apt.log start=$SECONDS
  say "installing Debian packages:" $missing
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >"$log" 2>&1 || true  # the lists that are here may do
  # On its standard output, the one that sudo leaves open: lines KIND:WHAT:PERCENT:WORDS between all others.
  "${apt[@]}" -o APT::Status-Fd=1 install --no-install-recommends $missing 2>&1 |
    while IFS= read -r line; do
      if [[ $line =~ ^(dl|pm)status:[^:]*:([0-9]+) ]]; then
        progress "installing Debian packages: ${BASH_REMATCH[2]} %, $((SECONDS - start)) s"
      else
        printf '%s\n' "$line" >>"$log"
      fi
    done || fail_install "$log" "installing Debian packages"
  end_progress "installed Debian packages in $((SECONDS - start)) s"
}

# A python3 that has pip: the first on the path, or the system's.
python_with_pip() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      echo "$python"
      return
    fi
  done
  return 1
}

# What .deps holds: the wheels, and what settle_ucx makes of them.
wheels_key() { cat "$root/cmake/requirements.txt" "$root/cmake/ucx.conf" | sha256sum | cut -c 1-64; }

# UCX's settings where nobody sets them: a start of ringzero takes 0.2 instead of 0.6 s. First in the file, for what comes later
# in it is of one kind of processor.
settle_ucx() {
  local theirs=$1/etc/ucx/ucx.conf
  [ -e "$theirs" ] || return 0
  cat "$root/cmake/ucx.conf" "$theirs" >"$theirs.new"
  mv "$theirs.new" "$theirs"
}

# Whether CMAKE_PREFIX_PATH holds a LibTorch of the user's own: then no wheel is wanted.
own_libtorch() {
  local prefix
  local IFS=:
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    [ ! -e "$prefix/include/torch/csrc/api/include/torch/torch.h" ] || return 0
    [ ! -e "$prefix/torch/include/torch/csrc/api/include/torch/torch.h" ] || return 0
  done
  return 1
}

wheels_are_in_place() { [ "$(cat "$deps/site/.key" 2>/dev/null)" = "$(wheels_key)" ]; }

# The key is written last, inside the folder, and the folder is renamed into place: a half-installed one has no key.
install_wheels() {
  if own_libtorch || wheels_are_in_place; then return; fi
  check_tools
  mkdir -p "$deps/log"
  (
    flock -n 9 || { say "waiting for another ./rz that is installing here" && flock 9; }
    ! wheels_are_in_place || exit 0
    rm -rf "$deps"/new.*
    [ "$(free_mib "$deps")" -ge $needed_mib ] ||
      die "no space for the wheels: $(free_mib "$deps") MiB are free in $deps, $needed_mib MiB are needed. Free some and run the command again"
    local python log=$deps/log/pip.log new=$deps/new.$$ start=$SECONDS
    python=$(python_with_pip) || die "no python3 with pip is here: install python3 and pip, or set CMAKE_PREFIX_PATH to a LibTorch of your own"
    say "installing LibTorch and UCX into .deps (pinned wheels, about 600 MB to download; log: .deps/log/pip.log)"
    mkdir -p "$new/tmp"
    TMPDIR=$new/tmp "$python" -m pip --disable-pip-version-check install --no-input --progress-bar off \
      --no-deps --require-hashes --only-binary :all: --implementation cp --python-version 3.11 \
      --no-compile --target "$new/site" -r "$root/cmake/requirements.txt" >"$log" 2>&1 9>&- &
    local pip=$!
    watch_folder $pip "$new" "installing LibTorch and UCX"
    wait $pip || {
      rm -rf "$new"
      fail_install "$log" "installing LibTorch"
    }
    settle_ucx "$new/site/libucx"
    wheels_key >"$new/site/.key"
    rm -rf "$deps/site"
    mv "$new/site" "$deps/site"
    rm -rf "$new"
    end_progress "installed LibTorch and UCX in $((SECONDS - start)) s"
  ) 9>"$deps/.lock"
}

# watch_folder PID FOLDER WHAT: shows how full the folder is until the process ends. What pip leaves of the pinned wheels is known.
watch_folder() {
  local start=$SECONDS mib
  while kill -0 "$1" 2>/dev/null; do
    mib=$({ du -sm "$2" 2>/dev/null || true; } | cut -f 1)  # files go while du looks
    progress "$3: $mib of about $wheels_mib MiB, $(time_left "$start" "$mib" $wheels_mib)"
    sleep 1
  done
}

# A compiler or CMake that is too old or absent is told of before anything large is downloaded or configured.
check_tools() {
  check_compiler
  local version
  command -v cmake >/dev/null || die "no cmake: install CMake 3.25 or newer"
  version=$(cmake --version | awk 'NR == 1 {print $3}')
  [ "$(printf '3.25\n%s\n' "$version" | sort -V | head -n 1)" = 3.25 ] ||
    die "cmake is $version, too old: CMake 3.25 or newer is needed (Debian 12 has it; elsewhere: pip install cmake)"
  command -v ninja >/dev/null || die "no ninja: install ninja (Debian: ninja-build)"
}

check_compiler() {
  local compiler=${CXX:-c++}
  command -v ${compiler%% *} >/dev/null || die "no C++ compiler '$compiler': install g++ 12 or newer, or set CXX"
  local name version needed
  name=clang needed=15
  version=$(echo __clang_major__ | $compiler -x c++ -E -P - 2>/dev/null | tail -n 1)
  if [ "$version" = __clang_major__ ]; then
    name=g++ needed=12
    version=$(echo __GNUC__ | $compiler -x c++ -E -P - 2>/dev/null | tail -n 1)
  fi
  [[ "$version" =~ ^[0-9]+$ ]] || die "'$compiler' is not a compiler that can be used: install g++ 12 or clang 15, and set CXX to it"
  [ "$version" -ge $needed ] ||
    die "$compiler is $name $version, too old: g++ 12 or clang 15 is needed. Install one and set CXX to it"
  printf '#include <concepts>\n#include <span>\nint f(std::span<const int> s) { return s[0]; }\n' |
    $compiler -x c++ -std=c++20 -fsyntax-only - >/dev/null 2>&1 ||
    die "$compiler ($name $version) cannot compile a small C++20 file: its standard library is missing or too old"
}
