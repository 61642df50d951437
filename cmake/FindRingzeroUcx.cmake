# Finds UCX (1.17 or newer): its headers, and the folder from which its libraries are loaded.
#
# Looked for, in this order: CMAKE_PREFIX_PATH (a UCX installation or a site-packages folder with libucx), RINGZERO_UCX_HINT,
# then the wheel that ./rz installs into .deps/site.
#
# Sets RingzeroUcx_FOUND, _VERSION, _ROOT (the folder with include/ and lib/), and RINGZERO_UCX_INCLUDE_DIR and
# RINGZERO_UCX_LIBRARY_FOLDER.

find_path(RINGZERO_UCX_INCLUDE_DIR ucp/api/ucp.h
  HINTS ${RINGZERO_UCX_HINT} ${CMAKE_CURRENT_LIST_DIR}/../.deps/site
  PATH_SUFFIXES include libucx/include
  DOC "The include folder of UCX")
mark_as_advanced(RINGZERO_UCX_INCLUDE_DIR)

set(RingzeroUcx_VERSION "")
set(RingzeroUcx_ROOT "")
unset(ringzero_ucx_libraries)
if(RINGZERO_UCX_INCLUDE_DIR)
  get_filename_component(RingzeroUcx_ROOT ${RINGZERO_UCX_INCLUDE_DIR} DIRECTORY)
  file(STRINGS ${RINGZERO_UCX_INCLUDE_DIR}/ucp/api/ucp_version.h line REGEX "define UCP_API_(MAJOR|MINOR) ")
  if("${line}" MATCHES "UCP_API_MAJOR +([0-9]+).*UCP_API_MINOR +([0-9]+)")
    set(RingzeroUcx_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2})
  endif()
  foreach(name ucp ucs)
    file(GLOB library ${RingzeroUcx_ROOT}/lib/lib${name}.so ${RingzeroUcx_ROOT}/lib64/lib${name}.so
                      ${RingzeroUcx_ROOT}/lib/*/lib${name}.so)
    if(library)
      list(GET library 0 library)
      list(APPEND ringzero_ucx_libraries ${library})
    endif()
  endforeach()
  list(LENGTH ringzero_ucx_libraries ringzero_ucx_count)
  if(NOT ringzero_ucx_count EQUAL 2)
    unset(ringzero_ucx_libraries)
  endif()
  if(RingzeroUcx_VERSION AND RingzeroUcx_VERSION VERSION_LESS 1.17)
    message(WARNING "The UCX in ${RingzeroUcx_ROOT} is ${RingzeroUcx_VERSION}: 1.17 or newer is needed.")
    unset(ringzero_ucx_libraries)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroUcx
  REQUIRED_VARS ringzero_ucx_libraries RINGZERO_UCX_INCLUDE_DIR
  VERSION_VAR RingzeroUcx_VERSION
  REASON_FAILURE_MESSAGE "set CMAKE_PREFIX_PATH to a UCX folder, or let ./rz build install the pinned one")

# Nothing links UCX: p2p/ucx/ucx_worker.cc loads it from here. Its modules (lib/ucx/*.so) are found by UCX itself.
if(RingzeroUcx_FOUND)
  list(GET ringzero_ucx_libraries 0 ringzero_ucp)
  get_filename_component(RINGZERO_UCX_LIBRARY_FOLDER ${ringzero_ucp} DIRECTORY)
endif()
