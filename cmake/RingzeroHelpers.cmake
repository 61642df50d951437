# The helpers that every folder's CMakeLists.txt uses: ringzero_library, ringzero_test, ringzero_program.

include(GNUInstallDirs)

# ringzero_library(NAME <name> [SRCS ...] [HDRS ...] [DEPS ...] [NO_INSTALL])
#   Makes the static library ringzero_<name> (a header-only one when SRCS is empty), alias ringzero::<name>.
#   Includes are written from the project's root: "base/buffer.h". DEPS are public.
#   NO_INSTALL keeps it out of `cmake --install`: for what only tests and benchmarks use.
function(ringzero_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "NO_INSTALL" "NAME" "SRCS;HDRS;DEPS")
  ringzero_check_arguments(ringzero_library)
  set(target ringzero_${arg_NAME})
  if(arg_SRCS)
    add_library(${target} STATIC ${arg_SRCS} ${arg_HDRS})
    ringzero_sanitizer_pch(${target})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE ${arg_HDRS})
    set(scope INTERFACE)
  endif()
  add_library(ringzero::${arg_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${arg_NAME})
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ringzero>)
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_DEPS})

  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT arg_NO_INSTALL AND NOT folder MATCHES "^(tests|bench|examples)")
    install(TARGETS ${target} EXPORT ringzero ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    foreach(header IN LISTS arg_HDRS)
      get_filename_component(header_folder ${folder}/${header} DIRECTORY)
      install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringzero/${header_folder})
    endforeach()
  endif()
endfunction()

# ringzero_program(NAME <name> SRCS ... [DEPS ...])
#   Makes an executable in <source>/build/bin, whatever the preset's own folder. A sanitized one stays in its preset's
#   folder (build/asan/bin): it must never stand where a measurement looks for the fast one.
function(ringzero_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SRCS;DEPS")
  ringzero_check_arguments(ringzero_program)
  add_executable(${arg_NAME} ${arg_SRCS})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS})
  if(RINGZERO_SANITIZE)
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  else()
    set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/build/bin)
  endif()
endfunction()

# ringzero_test(NAME <name> SRCS ... [DEPS ...] [LABELS ...] [ARGS ...] [ENV VAR=VALUE ...]
#               [PROCESSORS <n>] [RUN_SERIAL] [TIMEOUT <seconds>])
#   Makes a GoogleTest executable <name> (gtest's and gmock's main is linked unless SRCS bring one) and one ctest entry of
#   that name. It runs in the project's root (golden files are read by their path there).
#   LABELS: `everyday` is added unless `full` is there: a test labelled `full` runs in `./rz test --full` alone.
#     `address-sample`, `thread-sample`: also built and run under this sanitizer in the everyday `./rz test`: the one that can
#     find more there (memory: what reads bytes from outside; threads: what several threads share).
#     `sanitize-sample`, which either of them brings: under both in `./rz test --full`.
#   In `./rz test --full` RINGZERO_TEST_FULL=1 is set, so one executable can have both a sample and all combinations.
#   PROCESSORS: how many of the machine's cores ctest reckons it keeps busy. RUN_SERIAL: nothing runs beside it.
#   TIMEOUT: 300 s unless given; three times as long under a sanitizer.
function(ringzero_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "RUN_SERIAL" "NAME;PROCESSORS;TIMEOUT" "SRCS;DEPS;LABELS;ARGS;ENV")
  ringzero_check_arguments(ringzero_test)
  add_executable(${arg_NAME} ${arg_SRCS})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS} GTest::gmock GTest::gmock_main GTest::gtest)
  ringzero_sanitizer_pch(${arg_NAME} GTEST)

  # One result file per entry: ./rz adds up the cases from these (cmake/count_tests.py).
  add_test(NAME ${arg_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMAND ${arg_NAME} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${arg_NAME}.xml ${arg_ARGS})
  if("address-sample" IN_LIST arg_LABELS OR "thread-sample" IN_LIST arg_LABELS)
    list(APPEND arg_LABELS sanitize-sample)
  endif()
  ringzero_test_properties(${arg_NAME} LABELS ${arg_LABELS} ENV ${arg_ENV}
    PROCESSORS ${arg_PROCESSORS} TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_RUN_SERIAL})

  foreach(sample address-sample thread-sample sanitize-sample)
    if(sample IN_LIST arg_LABELS)
      add_dependencies(${sample} ${arg_NAME})
    endif()
  endforeach()
endfunction()

# ringzero_command_test(NAME <name> COMMAND <program> [args ...] [LABELS ...] [ENV ...] [PROCESSORS <n>] [RUN_SERIAL]
#                       [TIMEOUT <seconds>])
#   One ctest entry that runs a command (a script, or a program with arguments) in the project's root.
#   Exit code 0 passed, 77 skipped, anything else failed.
function(ringzero_command_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "RUN_SERIAL" "NAME;PROCESSORS;TIMEOUT" "COMMAND;LABELS;ENV")
  ringzero_check_arguments(ringzero_command_test)
  add_test(NAME ${arg_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMAND ${arg_COMMAND})
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77)
  ringzero_test_properties(${arg_NAME} LABELS ${arg_LABELS} ENV ${arg_ENV}
    PROCESSORS ${arg_PROCESSORS} TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_RUN_SERIAL})
endfunction()

# ringzero_torch_pch(<target>)
#   The target's sources are compiled with <torch/torch.h> already parsed (15 s a file without). All targets share the one
#   precompiled header of ringzero_torch_pch, so they must have the same code-generating flags: the project's.
function(ringzero_torch_pch target)
  if(NOT TARGET ringzero_torch_pch)
    set(stub ${PROJECT_BINARY_DIR}/torch_pch.cc)
    file(CONFIGURE OUTPUT ${stub} CONTENT "// Carries the precompiled header of <torch/torch.h>.\n")
    add_library(ringzero_torch_pch OBJECT ${stub})
    target_link_libraries(ringzero_torch_pch PUBLIC ringzero::libtorch)
    target_precompile_headers(ringzero_torch_pch PRIVATE <torch/torch.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ringzero_torch_pch)
endfunction()

# ringzero_sanitizer_pch(<target> [GTEST])
#   In builds for sanitizers and fuzzing, where compiling is most of the time: the target's sources are compiled with the
#   commonest headers already parsed, GTEST: GoogleTest's too. Nowhere else, so that a missing #include is noticed.
function(ringzero_sanitizer_pch target)
  if(NOT RINGZERO_SANITIZE AND NOT RINGZERO_FUZZ)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "GTEST" "" "")
  set(headers <algorithm> <chrono> <functional> <map> <memory> <optional> <span> <string> <thread> <utility> <vector>
    <absl/status/statusor.h> <absl/strings/str_cat.h>)
  set(pch ringzero_pch)
  if(arg_GTEST)
    set(pch ringzero_gtest_pch)
    list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  if(NOT TARGET ${pch})
    set(stub ${PROJECT_BINARY_DIR}/${pch}.cc)
    file(CONFIGURE OUTPUT ${stub} CONTENT "// Carries a precompiled header.\n")
    add_library(${pch} OBJECT ${stub})
    target_link_libraries(${pch} PUBLIC absl::statusor absl::strings $<$<BOOL:${arg_GTEST}>:GTest::gmock>)
    target_precompile_headers(${pch} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# For the helpers above ------------------------------------------------------------------------------------------------

macro(ringzero_check_arguments helper)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${helper}(NAME ${arg_NAME}): unknown arguments: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_NAME)
    message(FATAL_ERROR "${helper}: NAME is missing")
  endif()
endmacro()

function(ringzero_test_properties name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROCESSORS;TIMEOUT;RUN_SERIAL" "LABELS;ENV")
  set(labels ${arg_LABELS})
  if(NOT "full" IN_LIST labels)
    list(APPEND labels everyday)
  endif()
  list(REMOVE_DUPLICATES labels)
  set(timeout 300)
  if(arg_TIMEOUT)
    set(timeout ${arg_TIMEOUT})
  endif()
  if(RINGZERO_SANITIZE)
    math(EXPR timeout "${timeout} * 3")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout})
  # torch's TCPStore looks up names of addresses; no test should wait 10 s for a name server that is not there.
  set(environment ${arg_ENV} "RES_OPTIONS=timeout:1 attempts:1")
  if(RINGZERO_SANITIZE)
    # UCX's hooks into memory calls crash under ThreadSanitizer at a thread's end. They are set before main.
    list(APPEND environment UCX_MEM_EVENTS=n)
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}")
  if(arg_PROCESSORS)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_PROCESSORS})
  endif()
  if(arg_RUN_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# Adds a folder that has a CMakeLists.txt, and says nothing of one that has none.
macro(ringzero_add_folder folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endmacro()
