# What makes building fast and changes nothing in what is built: units of several sources, precompiled headers, ccache, mold.
#
#   RINGZERO_UNITY  ON: up to sixteen sources of a target are compiled as one. Faster from nothing, slower after a change.
#   RINGZERO_PCH    Which precompiled headers are used, a list of: torch (what our sources need of LibTorch), common
#                   (Abseil and the standard library), gtest (those and GoogleTest).
#   RINGZERO_CCACHE, RINGZERO_MOLD  OFF: these two are not used, though they are installed.
#
# The presets choose (CMakePresets.json). A plain CMake build has neither units nor precompiled headers.

option(RINGZERO_UNITY "Compile several sources as one" OFF)
set(RINGZERO_PCH "" CACHE STRING "Precompiled headers to use: a list of torch, common and gtest")
option(RINGZERO_CCACHE "Compile through ccache, where it is installed" ON)
option(RINGZERO_MOLD "Link with mold, where it is installed" ON)

find_program(RINGZERO_CCACHE_PROGRAM ccache)
find_program(RINGZERO_MOLD_PROGRAM mold)
mark_as_advanced(RINGZERO_CCACHE_PROGRAM RINGZERO_MOLD_PROGRAM)

# A second clone hits what the first has compiled: paths below the project's root are taken relative to it, and ccache
# believes what a precompiled header was made from (-fpch-preprocess tells it which header that is). It remembers the hash of
# a header that did not change: the precompiled ones have 130 MB and more.
if(RINGZERO_CCACHE AND RINGZERO_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_INODECACHE=1 CCACHE_SLOPPINESS=pch_defines,time_macros ${RINGZERO_CCACHE_PROGRAM})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
  ringzero_summary("ccache" "${RINGZERO_CCACHE_PROGRAM}")
else()
  ringzero_summary("ccache" "not used: compiling again takes its time")
endif()
if(RINGZERO_MOLD AND RINGZERO_MOLD_PROGRAM)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
  ringzero_summary("linker" "${RINGZERO_MOLD_PROGRAM}")
else()
  ringzero_summary("linker" "the compiler's own")
endif()

# A library does not wait for those that it is linked with, nor does a header that is compiled alone.
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)

# GCC takes what a unit includes for a header, and warns of names of its own there. The other presets see what is true of it.
if(RINGZERO_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

set(ringzero_pch_headers_common <algorithm> <chrono> <functional> <map> <memory> <optional> <set> <span> <string> <thread>
  <utility> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h>)
set(ringzero_pch_headers_gtest ${ringzero_pch_headers_common} <gmock/gmock.h> <gtest/gtest.h>)
set(ringzero_pch_headers_torch "${PROJECT_SOURCE_DIR}/integrations/torch/torch.h")
set(ringzero_pch_links_common absl::statusor absl::strings)
set(ringzero_pch_links_gtest ${ringzero_pch_links_common} GTest::gmock)
set(ringzero_pch_links_torch ringzero::libtorch)

# ringzero_compile_fast(<target> <header>)
#   Units and the precompiled header `torch`, `common` or `gtest` for the target, as the options above say. All targets share
#   one file of each header, so they must have the same code-generating flags: the project's. A source with options of its own
#   stays out of units (CMake's rule); so does CUDA's.
function(ringzero_compile_fast target header)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${RINGZERO_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  if(NOT header IN_LIST RINGZERO_PCH)
    return()
  endif()
  set(carrier ringzero_pch_${header})
  if(NOT TARGET ${carrier})
    set(stub ${PROJECT_BINARY_DIR}/${carrier}.cc)
    file(CONFIGURE OUTPUT ${stub} CONTENT "// Carries the precompiled header.\n")
    add_library(${carrier} OBJECT ${stub})
    target_link_libraries(${carrier} PUBLIC ${ringzero_pch_links_${header}})
    target_precompile_headers(${carrier} PRIVATE ${ringzero_pch_headers_${header}})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${carrier})
endfunction()
