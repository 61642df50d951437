# The Python that the Python package is built for and tested with. Sourced by ./rz, which sets $root.

python_home=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ringzero

# fits_package PYTHON: whether it has the headers, the torch, and what the tests use.
fits_package() {
  "$1" - "$root/cmake/requirements-python.txt" >/dev/null 2>&1 <<'END'
import importlib.metadata, os, sys, sysconfig
assert (3, 11) <= sys.version_info < (3, 13)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
for line in open(sys.argv[1], encoding="utf-8"):
    if "==" in line:
        name, version = line.strip().split("==")
        found = importlib.metadata.version(name)
        assert name != "torch" or found.split("+")[0] == version
END
}

# find_python: sets $package_python to $RINGZERO_TEST_PYTHON, or to python3 if it has all that is wanted. The word "install"
# brings one. Without one the package is not built, and its tests are skipped.
find_python() {
  local wanted=${RINGZERO_TEST_PYTHON:-}
  package_python=
  if [ "$wanted" = install ]; then
    install_python
  elif [ -n "$wanted" ]; then
    fits_package "$wanted" || die "RINGZERO_TEST_PYTHON=$wanted: wanted CPython 3.11 or 3.12 with its headers and" \
      "the packages of cmake/requirements-python.txt (RINGZERO_TEST_PYTHON=install brings one)"
    package_python=$(command -v "$wanted")
  elif fits_package python3; then
    package_python=$(command -v python3)
  fi
}

# install_python: a virtual environment outside of the checkout, 5 GB, once per list of packages. Its packages come while the
# package is compiled, which needs the headers alone: finish_python waits for them.
install_python() {
  local list=$root/cmake/requirements-python.txt folder
  folder=$python_home/python-$(sha256sum "$list" | cut -c 1-12)
  package_python=$folder/bin/python3
  ! fits_package "$package_python" || return 0
  install_packages python
  mkdir -p "$folder" "$deps/log"
  say "installing torch and what the Python package's tests use into $folder (5 GB, once)"
  /usr/bin/python3 -m venv --clear "$folder" >"$deps/log/python.log" 2>&1 ||
    fail_install "$deps/log/python.log" "making a virtual environment for Python"
  "$package_python" -m pip --disable-pip-version-check install --no-input --no-cache-dir --progress-bar off -r "$list" \
    >"$deps/log/python.log" 2>&1 &
  python_packages=$!
  trap '[ -z "$python_packages" ] || kill "$python_packages" 2>/dev/null || true' EXIT
}

# finish_python: what install_python has begun.
finish_python() {
  [ -n "${python_packages:-}" ] || return 0
  local start=$SECONDS
  local waited=$python_packages
  python_packages=
  wait "$waited" || fail_install "$deps/log/python.log" "installing torch for Python"
  fits_package "$package_python" || die "$package_python lacks something of cmake/requirements-python.txt, or the headers"
  say "torch for Python is there, after $((SECONDS - start)) s more"
}
