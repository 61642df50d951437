# Finds LibTorch and makes ringzero::libtorch of libtorch_cpu and libc10 alone, so that a CPU run loads no large CUDA
# library. Torch's own package file is not used: it asks for a whole CUDA toolkit.
#
# Looked for, in this order: CMAKE_PREFIX_PATH (a libtorch folder, a site-packages/torch folder or a site-packages folder),
# RINGZERO_TORCH_HINT, then the wheel that ./rz installs into .deps/site.
#
# Sets RingzeroTorch_FOUND, RingzeroTorch_VERSION and RingzeroTorch_ROOT (the folder with include/ and lib/).

find_path(RINGZERO_TORCH_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  HINTS ${RINGZERO_TORCH_HINT} ${CMAKE_CURRENT_LIST_DIR}/../.deps/site
  PATH_SUFFIXES include torch/include
  DOC "The include folder of LibTorch")
mark_as_advanced(RINGZERO_TORCH_INCLUDE_DIR)

set(RingzeroTorch_VERSION "")
set(RingzeroTorch_ROOT "")
unset(ringzero_torch_libraries)
if(RINGZERO_TORCH_INCLUDE_DIR)
  get_filename_component(RingzeroTorch_ROOT ${RINGZERO_TORCH_INCLUDE_DIR} DIRECTORY)
  foreach(header torch/version.h torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(NOT RingzeroTorch_VERSION AND EXISTS ${RINGZERO_TORCH_INCLUDE_DIR}/${header})
      file(STRINGS ${RINGZERO_TORCH_INCLUDE_DIR}/${header} line REGEX "define TORCH_VERSION(_MAJOR|_MINOR|_PATCH)? ")
      if("${line}" MATCHES "TORCH_VERSION_MAJOR ([0-9]+).*TORCH_VERSION_MINOR ([0-9]+).*TORCH_VERSION_PATCH ([0-9]+)")
        set(RingzeroTorch_VERSION ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3})
      endif()
    endif()
  endforeach()
  if(EXISTS ${RingzeroTorch_ROOT}/lib/libtorch_cpu.so AND EXISTS ${RingzeroTorch_ROOT}/lib/libc10.so)
    set(ringzero_torch_libraries ${RingzeroTorch_ROOT}/lib/libtorch_cpu.so ${RingzeroTorch_ROOT}/lib/libc10.so)
  endif()
  set(ringzero_torch_config ${RingzeroTorch_ROOT}/share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${ringzero_torch_config})
    file(STRINGS ${ringzero_torch_config} ringzero_torch_old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(ringzero_torch_old_abi)
      message(WARNING "The LibTorch in ${RingzeroTorch_ROOT} has the old C++ ABI (pre-cxx11) and cannot be linked with this "
                      "system's libraries: take its cxx11-abi build.")
      unset(ringzero_torch_libraries)
    endif()
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RingzeroTorch
  REQUIRED_VARS ringzero_torch_libraries RINGZERO_TORCH_INCLUDE_DIR
  VERSION_VAR RingzeroTorch_VERSION
  REASON_FAILURE_MESSAGE "set CMAKE_PREFIX_PATH to a LibTorch folder, or let ./rz build install the pinned one")

if(RingzeroTorch_FOUND AND NOT TARGET ringzero::libtorch)
  add_library(ringzero::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(ringzero::c10 PROPERTIES IMPORTED_LOCATION ${RingzeroTorch_ROOT}/lib/libc10.so)
  add_library(ringzero::libtorch SHARED IMPORTED GLOBAL)
  set_target_properties(ringzero::libtorch PROPERTIES
    IMPORTED_LOCATION ${RingzeroTorch_ROOT}/lib/libtorch_cpu.so
    INTERFACE_INCLUDE_DIRECTORIES
      "${RINGZERO_TORCH_INCLUDE_DIR};${RINGZERO_TORCH_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES ringzero::c10)
  # What libtorch_cpu asks for lies beside it; the CUDA wheel's libcudart and libcupti in wheels of their own. The linker
  # must see them too, though nothing here calls them; at run time libtorch's own rpath finds them, ours is for moved ones.
  file(GLOB ringzero_cuda_libraries ${RingzeroTorch_ROOT}/../nvidia/*/lib/libcudart.so.*
                                    ${RingzeroTorch_ROOT}/../nvidia/*/lib/libcupti.so.*)
  set(ringzero_cuda_folders ${RingzeroTorch_ROOT}/lib)
  foreach(library IN LISTS ringzero_cuda_libraries)
    get_filename_component(folder ${library} DIRECTORY)
    get_filename_component(folder ${folder} REALPATH)
    list(APPEND ringzero_cuda_folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES ringzero_cuda_folders)
  foreach(folder IN LISTS ringzero_cuda_folders)
    set_property(TARGET ringzero::libtorch APPEND PROPERTY
      INTERFACE_LINK_OPTIONS "LINKER:-rpath-link,${folder}" "LINKER:-rpath,${folder}")
  endforeach()
endif()
