# Installs the peers, PyTorch and DeepSpeed for Python, into .deps/peers: about 2.2 GB to download, once. Sourced by ./rz
# after cmake/rz_install.sh, and only for the benchmarks that run peers: `./rz bench checkpoints`, `peers`,
# `latency`, `curve`, `rules_study`, `offload_peers`.

peers_folder=$root/bench/peers

# bench_with_peers NAME ARGUMENTS...: installs and builds what is missing, and becomes that benchmark.
bench_with_peers() {
  local name=$1 python packages=(build bench) targets=(ringzero)
  shift
  if [ "$name" = latency ]; then # its hosts are network namespaces
    packages+=(test)
    targets+=(hosts_link)
  fi
  case $name in curve | rules_study) packages+=(data) ;; esac
  if [ "$name" = peers ]; then # the Python package is one of them
    packages+=(python)
    targets+=(_ringzero)
  fi
  install_packages "${packages[@]}"
  python=$(peers_python) ||
    die "bench $name needs Python 3.11 with pip, which its pinned wheels are for (Debian 12: python3 and python3-pip)"
  # What is wrong with the arguments is said before anything is downloaded.
  PYTHONPATH=$root/bench:$root/tests "$python" -m "$name" --check "$@" || exit $?
  case " $* " in *" --help "* | *" -h "*) exit 0 ;; esac
  install_all build
  install_peers "$python"
  [ "$name" != peers ] || package_python=$(command -v "$python")
  build release "${targets[@]}"
  PYTHONPATH=$root/bench:$root/tests:$deps/peers:$root/build/release/python exec "$python" -m "$name" --program "$root/build/bin/ringzero" "$@"
}

peers_python() {
  local python
  for python in python3.11 python3 /usr/bin/python3; do
    if "$python" -c 'import sys, pip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  return 1
}

peers_key() { cat "$peers_folder"/requirements*.txt | sha256sum | cut -c 1-64; }

peers_are_in_place() { [ "$(cat "$deps/peers/.key" 2>/dev/null)" = "$(peers_key)" ]; }

# As install_wheels does it: whole or not at all.
install_peers() {
  if peers_are_in_place; then return; fi
  local python=$1 needed_mib=8192
  mkdir -p "$deps/log"
  (
    flock -n 9 || { say "waiting for another ./rz that is installing here" && flock 9; }
    ! peers_are_in_place || exit 0
    rm -rf "$deps"/new-peers.*
    [ "$(free_mib "$deps")" -ge $needed_mib ] ||
      die "no space for the peers: $(free_mib "$deps") MiB are free in $deps, $needed_mib MiB are needed. Free some and run the command again"
    local log=$deps/log/pip-peers.log new=$deps/new-peers.$$
    say "installing PyTorch and DeepSpeed into .deps/peers (pinned, about 2.2 GB to download; log: .deps/log/pip-peers.log)"
    mkdir -p "$new/tmp"
    local pip=("$python" -m pip --disable-pip-version-check install --no-input --progress-bar off --no-deps --require-hashes
      --no-compile --target "$new/site")
    # DeepSpeed is built by the setuptools that the first line installs, and without any operator compiled.
    {
      TMPDIR=$new/tmp "${pip[@]}" --only-binary :all: -r "$peers_folder/requirements.txt" &&
        TMPDIR=$new/tmp PYTHONPATH=$new/site DS_BUILD_OPS=0 DS_ACCELERATOR=cpu "${pip[@]}" --no-build-isolation \
          -r "$peers_folder/requirements-deepspeed.txt"
    } >"$log" 2>&1 9>&- || {
      rm -rf "$new"
      fail_install "$log" "installing the peers"
    }
    peers_key >"$new/site/.key"
    rm -rf "$deps/peers"
    mv "$new/site" "$deps/peers"
    rm -rf "$new"
  ) 9>"$deps/.lock"
}
