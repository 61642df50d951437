# Read after project(): makes CMake look where it would on a distribution with lib64 and without Debian's folders per
# architecture. (What it does by itself is decided by /etc/debian_version.)
set_property(GLOBAL PROPERTY FIND_LIBRARY_USE_LIB64_PATHS TRUE)
unset(CMAKE_LIBRARY_ARCHITECTURE)
unset(CMAKE_CXX_LIBRARY_ARCHITECTURE)
