# Optional parts: each has an option RINGZERO_WITH_<NAME> = AUTO | ON | OFF.

# ringzero_feature(<NAME> <package> <what it gives>)
#   Looks for the package unless the option is OFF and sets RINGZERO_HAVE_<NAME>. ON and absent is an error;
#   AUTO and absent is said in the summary, never silent.
macro(ringzero_feature name package purpose)
  set(RINGZERO_WITH_${name} AUTO CACHE STRING "${purpose}: AUTO, ON or OFF")
  set_property(CACHE RINGZERO_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  set(RINGZERO_HAVE_${name} OFF)
  string(TOUPPER "${RINGZERO_WITH_${name}}" ringzero_wish)
  if(NOT ringzero_wish MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "RINGZERO_WITH_${name} is '${RINGZERO_WITH_${name}}': it must be AUTO, ON or OFF")
  endif()
  if(ringzero_wish STREQUAL "OFF")
    ringzero_summary("${name}" "off (RINGZERO_WITH_${name}=OFF): no ${purpose}")
  else()
    find_package(${package} QUIET)
    if(${package}_FOUND)
      set(RINGZERO_HAVE_${name} ON)
      ringzero_summary("${name}" "${${package}_VERSION} in ${${package}_ROOT}")
    elseif(ringzero_wish STREQUAL "ON")
      message(FATAL_ERROR "RINGZERO_WITH_${name}=ON, but ${name} was not found: set CMAKE_PREFIX_PATH to its folder, "
                          "let ./rz build install the pinned one, or take RINGZERO_WITH_${name}=AUTO to go on without")
    else()
      ringzero_summary("${name}" "not found: no ${purpose} (RINGZERO_WITH_${name}=AUTO)")
    endif()
  endif()
endmacro()

# ringzero_summary(<part> <text>) keeps a line for the end of the configure step; ringzero_print_summary() prints them.
function(ringzero_summary part text)
  string(SUBSTRING "${part}                " 0 16 column)
  set_property(GLOBAL APPEND PROPERTY ringzero_summary_lines "  ${column}${text}")
endfunction()

function(ringzero_print_summary)
  get_property(lines GLOBAL PROPERTY ringzero_summary_lines)
  list(JOIN lines "\n" text)
  message(STATUS "ringzero ${PROJECT_VERSION}\n${text}")
endfunction()
