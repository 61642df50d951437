# The helpers that every folder's CMakeLists.txt uses: ringzero_library, ringzero_program, ringzero_test.

include(GNUInstallDirs)

# ringzero_library(NAME <name> [SRCS ...] [HDRS ...] [DEPS ...] [TORCH] [NO_INSTALL])
#   Makes the static library ringzero_<name> (a header-only one when SRCS is empty), alias ringzero::<name>.
#   The header of a source (buffer.h of buffer.cc) is the library's, too: HDRS names the others.
#   Includes are written from the project's root: "base/buffer.h". DEPS are public.
#   TORCH: its headers include LibTorch's, or its sources do.
#   NO_INSTALL keeps it out of `cmake --install`: for what only tests and benchmarks use.
function(ringzero_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH;NO_INSTALL" "NAME" "SRCS;HDRS;DEPS")
  ringzero_check_arguments(ringzero_library)
  set(target ringzero_${arg_NAME})
  set(scope INTERFACE)
  set(kind INTERFACE)
  if(arg_SRCS)
    set(scope PUBLIC)
    set(kind STATIC)
  endif()
  add_library(${target} ${kind})
  add_library(ringzero::${arg_NAME} ALIAS ${target})
  target_sources(${target} PRIVATE ${arg_SRCS})
  set(headers "${arg_HDRS}")
  foreach(source ${arg_SRCS})
    cmake_path(REPLACE_EXTENSION source LAST_ONLY .h OUTPUT_VARIABLE header)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${header})
      list(APPEND headers ${header})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES headers)
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_DEPS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${arg_NAME})
  if(arg_TORCH)
    ringzero_compile_fast(${target} torch)
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS OFF)
  else()
    ringzero_compile_fast(${target} common)
  endif()

  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT arg_NO_INSTALL AND NOT folder MATCHES "^(tests|bench|examples)")
    add_dependencies(ringzero_package ${target})
    install(TARGETS ${target} EXPORT ringzero ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringzero)
  endif()
endfunction()

# ringzero_embed(<library's target> <file> <variable>): the file's text becomes `extern const char <variable>[]` in
# namespace ringzero.
function(ringzero_embed target file variable)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} text)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${variable}.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
namespace ringzero {
extern const char @variable@[];
const char @variable@[] = R"text(@text@)text";
}  // namespace ringzero
]])
  target_sources(${target} PRIVATE ${source})
endfunction()

# ringzero_program(NAME <name> SRCS ... [DEPS ...])
#   Makes an executable. That of the preset release lies in <source>/build/bin, where `./rz` and measurements look for the
#   fast one; that of any other build in <its folder>/bin.
function(ringzero_program)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SRCS;DEPS")
  ringzero_check_arguments(ringzero_program)
  add_executable(${arg_NAME} ${arg_SRCS})
  target_include_directories(${arg_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${arg_NAME} PRIVATE ${arg_DEPS})
  set(folder ${PROJECT_BINARY_DIR}/bin)
  if(PROJECT_BINARY_DIR STREQUAL "${PROJECT_SOURCE_DIR}/build/release")
    set(folder ${PROJECT_SOURCE_DIR}/build/bin)
  endif()
  set_target_properties(${arg_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder})
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/bench/")
    add_dependencies(ringzero_benchmarks ${arg_NAME})
  endif()
endfunction()

# ringzero_test(NAME <name> [SRCS ...] [DEPS ...] [LABELS ...] [ENV VAR=VALUE ...] [LOCKS ...] [PROCESSORS <n>]
#               [COST <seconds>] [TIMEOUT <seconds>] [TORCH] [ROOM <room> | ALONE])
#   GoogleTest cases: the sources become part of their room's program <room>_test, and the cases in them one ctest entry
#   <name>, which runs them in the project's root (golden files are read by their path there). By hand:
#   `build/test/bin/zero_test --files=engine_test.cc`.
#   SRCS: <name>.cc unless given. ROOM: the folder's name unless given.
#   ALONE: a program of its own, <name>, for what would disturb others.
#   TORCH: they use LibTorch. Then they are compiled as units where libraries are; other cases never are.
#   LABELS say when and where it runs; RINGZERO_TESTS which of them are built:
#     everyday        in `./rz test`; every entry has it but those labelled `full`, which run in `./rz test --full` alone
#     torch           TORCH entries have it
#     release         in the preset release, whose code is what users run: what looks at bits of results
#     address-sample  also under AddressSanitizer in `./rz test`: what reads bytes from outside
#     thread-sample   also under ThreadSanitizer in `./rz test`: what several threads share
#   In `./rz test --full` RINGZERO_TEST_FULL=1 is set, so one source can have both a sample and all combinations.
#   LOCKS: entries that name the same lock never run beside each other: `clock` is for what measures seconds.
#   PROCESSORS: how many of the machine's cores ctest reckons it keeps busy.
#   COST: about how long it runs, if that is long: ctest begins with the costliest, so that no core waits for it at the end.
#   TIMEOUT: 300 s unless given; three times as long under a sanitizer.
function(ringzero_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "TORCH;ALONE" "NAME;ROOM;PROCESSORS;COST;TIMEOUT" "SRCS;DEPS;LABELS;ENV;LOCKS")
  ringzero_check_arguments(ringzero_test)
  if(arg_TORCH)
    list(APPEND arg_LABELS torch)
  endif()
  ringzero_is_wanted(wanted ${arg_LABELS})
  if(NOT wanted)
    return()
  endif()
  if(NOT arg_ROOM)
    get_filename_component(arg_ROOM ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  endif()
  if(NOT arg_SRCS)
    set(arg_SRCS ${arg_NAME}.cc)
  endif()
  set(program ${arg_ROOM}_test)
  if(arg_ALONE)
    set(program ${arg_NAME})
  endif()
  if(NOT TARGET ${program})
    add_executable(${program})
    add_dependencies(ringzero_tests ${program})
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${program} PRIVATE ringzero::test_main)
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    if(arg_TORCH)
      ringzero_compile_fast(${program} torch)
    else()
      ringzero_compile_fast(${program} gtest)
      set_target_properties(${program} PROPERTIES UNITY_BUILD OFF)
    endif()
  endif()
  target_sources(${program} PRIVATE ${arg_SRCS})
  target_link_libraries(${program} PRIVATE ${arg_DEPS})

  # One result file per entry: ./rz adds up the cases from these (cmake/count_tests.py).
  list(TRANSFORM arg_SRCS REPLACE "^.*/" "")
  list(JOIN arg_SRCS "," files)
  add_test(NAME ${arg_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMAND ${program} --files=${files} --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${arg_NAME}.xml)
  ringzero_test_properties(${arg_NAME} LABELS ${arg_LABELS} ENV ${arg_ENV} LOCKS ${arg_LOCKS}
    PROCESSORS ${arg_PROCESSORS} COST ${arg_COST} TIMEOUT ${arg_TIMEOUT})
endfunction()

# ringzero_command_test(NAME <name> COMMAND <program> [args ...] [NEEDS <target> ...] [LABELS ...] [ENV ...] [LOCKS ...]
#                       [PROCESSORS <n>] [COST <seconds>] [TIMEOUT <seconds>])
#   One ctest entry that runs a command (a script, or a program with arguments) in the project's root.
#   Exit code 0 passed, 77 skipped, anything else failed. NEEDS: what must have been built.
#   A label `program` says that it runs our programs as users do: in the preset release, where they are built for users.
function(ringzero_command_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;PROCESSORS;COST;TIMEOUT" "COMMAND;NEEDS;LABELS;ENV;LOCKS")
  ringzero_check_arguments(ringzero_command_test)
  ringzero_is_wanted(wanted ${arg_LABELS})
  if(NOT wanted)
    return()
  endif()
  add_test(NAME ${arg_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} COMMAND ${arg_COMMAND})
  if(arg_NEEDS)
    add_dependencies(ringzero_tests ${arg_NEEDS})
  endif()
  set_tests_properties(${arg_NAME} PROPERTIES SKIP_RETURN_CODE 77)
  ringzero_test_properties(${arg_NAME} LABELS ${arg_LABELS} ENV ${arg_ENV} LOCKS ${arg_LOCKS}
    PROCESSORS ${arg_PROCESSORS} COST ${arg_COST} TIMEOUT ${arg_TIMEOUT})
endfunction()

# ringzero_python_test(NAME <name> FILE <file> [CLASSES ...] [arguments of ringzero_command_test, without COMMAND])
#   One ctest entry that runs a file's unittest cases, all or those of CLASSES. Each test method counts (tests/run_cases.py).
function(ringzero_python_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;FILE" "CLASSES")
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  ringzero_command_test(NAME ${arg_NAME} ${arg_UNPARSED_ARGUMENTS}
    COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/run_cases.py
            --gtest_output=xml:${PROJECT_BINARY_DIR}/test-results/${arg_NAME}.xml ${CMAKE_CURRENT_SOURCE_DIR}/${arg_FILE} ${arg_CLASSES})
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

# Whether RINGZERO_TESTS asks for a test with these labels: it lists `all` or labels, and -label for what is left out.
function(ringzero_is_wanted variable)
  set(wanted FALSE)
  foreach(label all ${ARGN})
    if(label IN_LIST RINGZERO_TESTS)
      set(wanted TRUE)
    endif()
  endforeach()
  foreach(label IN LISTS ARGN)
    if(-${label} IN_LIST RINGZERO_TESTS)
      set(wanted FALSE)
    endif()
  endforeach()
  set(${variable} ${wanted} PARENT_SCOPE)
endfunction()

function(ringzero_test_properties name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROCESSORS;COST;TIMEOUT" "LABELS;ENV;LOCKS")
  set(labels ${arg_LABELS})
  if(NOT "full" IN_LIST labels)
    list(APPEND labels everyday)
  endif()
  list(REMOVE_DUPLICATES labels)
  set(timeout 300)
  if(arg_TIMEOUT)
    set(timeout ${arg_TIMEOUT})
  endif()
  # torch's TCPStore looks up names of addresses; no test should wait 10 s for a name server that is not there.
  set(environment ${arg_ENV} "RES_OPTIONS=timeout:1 attempts:1" UCX_MEM_MMAP_HOOK_MODE=none)
  if(RINGZERO_SANITIZE)
    math(EXPR timeout "${timeout} * 3")
    # UCX's hooks into memory calls crash under ThreadSanitizer at a thread's end. They are set when UCX is loaded.
    # UCX is loaded late, so its thread-local memory is dynamic. ThreadSanitizer reads the size of such memory where glibc
    # 2.36 has something else, and then fails to allocate 0x1eca0000ec000 bytes (2 of 12 runs of transport_stress_test).
    list(APPEND environment UCX_MEM_EVENTS=n
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/tsan_suppressions.txt:intercept_tls_get_addr=0")
  endif()
  if(RINGZERO_SANITIZE AND RINGZERO_HAVE_TORCH)
    # LibTorch has no instruments: a container that passes to it and back looks damaged, and what it keeps to its end is no
    # leak of ours. A read of released parameters is caught by a handler of ours.
    list(APPEND environment ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=0:allow_user_segv_handler=1:handle_segv=1)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} ENVIRONMENT "${environment}")
  if(arg_LOCKS)
    # Early, for they come one after the other: the rest runs beside them.
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK "${arg_LOCKS}" COST 100)
  endif()
  if(arg_COST)
    set_tests_properties(${name} PROPERTIES COST ${arg_COST})
  endif()
  if(arg_PROCESSORS)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${arg_PROCESSORS})
  endif()
endfunction()

# Adds a folder that has a CMakeLists.txt, and says nothing of one that has none.
macro(ringzero_add_folder folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endmacro()
