# What the CMakeLists.txt of every folder is written in:
#
#   weir_library(<folder> SOURCES a.cc ... DEPS base wire ... LINK Some::target ...)   -> target weir_<folder>
#   weir_program(<name>   SOURCES a.cc ... DEPS ... LINK ... LIBRARY)                  -> executable
#   weir_test(<name>      SOURCES a_test.cc ... DEPS ... LINK ... LABELS threads udp ... TIMEOUT seconds)
#   weir_fuzz(<name>      SOURCES a_fuzz.cc DEPS ... CORPUS dir MUTATIONS count)
#   weir_bench(<name>     SOURCES a_bench.cc DEPS ...)
#
# DEPS are folders (base means weir_base); LINK are any other targets. `weir` is the library that is installed; the
# command's target is `weir_command` (its file is named weir). Every target sees include/, src/ and the root.

include(CheckCXXSourceCompiles)
include(GoogleTest)

find_program(WEIR_CCACHE ccache)
mark_as_advanced(WEIR_CCACHE)
if(WEIR_CCACHE AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Presets share what they compile alike: the folder they compile in is not part of it. The sloppiness is what ccache
  # asks of those who precompile headers; neither __DATE__ nor its like occurs here.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_NOHASHDIR=1;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      "CCACHE_SLOPPINESS=pch_defines,time_macros;${WEIR_CCACHE}")
endif()

# ---- Flags ---------------------------------------------------------------------------------------------------------

# Ours alone: warnings, instrumentation. No -march: the crypto libraries choose by CPU at run time.
add_library(weir_flags INTERFACE)
target_compile_options(weir_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(weir_flags INTERFACE -Wno-restrict)  # false alarms on std::string in g++ 12
endif()
option(WEIR_WERROR "Treat warnings as errors" OFF)
if(WEIR_WERROR)
  target_compile_options(weir_flags INTERFACE -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(weir_flags INTERFACE -Wno-error=stringop-overflow)  # the same
  endif()
endif()

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
endif()

if(WEIR_SANITIZE)
  string(REPLACE "," ";" sanitizers "${WEIR_SANITIZE}")
  foreach(sanitizer IN LISTS sanitizers)
    target_compile_options(weir_flags INTERFACE -fsanitize=${sanitizer})
    target_link_options(weir_flags INTERFACE -fsanitize=${sanitizer})
  endforeach()
  target_compile_options(weir_flags INTERFACE -fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()
if(WEIR_COVERAGE)
  target_compile_options(weir_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(weir_flags INTERFACE --coverage)
endif()
if(WEIR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WEIR_FUZZ needs clang: cmake --preset fuzz")
  endif()
  target_compile_options(weir_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEIR_CHECK_NONCES)
  target_compile_definitions(weir_flags INTERFACE WEIR_CHECK_NONCES=1)
endif()

# Objects carry both machine code and the compiler's own form: programs are optimised across files, tests link fast
# (-fno-lto), and the installed library is stripped of the second so that any compiler can use it.
set(weir_lto OFF)
if(WEIR_LTO AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT WEIR_SANITIZE
   AND NOT WEIR_COVERAGE)
  set(CMAKE_REQUIRED_FLAGS "-flto=auto -ffat-lto-objects")
  check_cxx_source_compiles("int main() {}" WEIR_LTO_WORKS)
  unset(CMAKE_REQUIRED_FLAGS)
  set(weir_lto ${WEIR_LTO_WORKS})
endif()

# What a user of the library needs too. libstdc++ 12 offers <expected> only to compilers that claim the concepts of
# 2020; clang had them, but announced the older date until version 19.
add_library(weir_usage INTERFACE)
target_compile_features(weir_usage INTERFACE cxx_std_23)
set(old_clang "$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,19>>")
target_compile_options(weir_usage INTERFACE "$<${old_clang}:SHELL:-U__cpp_concepts -D__cpp_concepts=202002L>")

add_library(weir_system INTERFACE)
target_link_libraries(weir_system INTERFACE OpenSSL::Crypto Ngtcp2::Ngtcp2 Threads::Threads)
if(IPSecMB_FOUND)
  target_link_libraries(weir_system INTERFACE IPSecMB::IPSecMB)
  target_compile_definitions(weir_flags INTERFACE WEIR_HAVE_IPSEC_MB=1)
endif()

# For the few folders that ask; the others compile to the same either way, and need not be compiled again.
macro(weir_portable_folder)
  if(WEIR_PORTABLE_UDP)
    add_compile_definitions(WEIR_PORTABLE_UDP=1)
  endif()
endmacro()

# For the presets of ./dev test, which compile hundreds of files once each (docs/decisions/0017-quick-checks.md).
option(WEIR_PCH "Precompile the headers of the standard library and of GoogleTest" OFF)
set(WEIR_TEST_FLAGS "" CACHE STRING "Compiler flags for the sources of tests alone")

# ---- Helpers -------------------------------------------------------------------------------------------------------

function(weir_add_folder path)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${path}/CMakeLists.txt")
    add_subdirectory("${PROJECT_SOURCE_DIR}/${path}")
  endif()
endfunction()

macro(_weir_parse)
  cmake_parse_arguments(ARG "LIBRARY;OPTIMISED" "CORPUS;MUTATIONS;TIMEOUT" "SOURCES;DEPS;LINK;LABELS" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  # Half a tree can still be configured by hand; the presets turn this warning into an error.
  foreach(source IN LISTS ARG_SOURCES)
    if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${source}" AND NOT EXISTS "${source}")
      message(AUTHOR_WARNING "${name}: ${source} does not exist")
      list(REMOVE_ITEM ARG_SOURCES "${source}")
    endif()
  endforeach()
  list(TRANSFORM ARG_DEPS REPLACE "^weir_" "")
  list(TRANSFORM ARG_DEPS PREPEND weir_)
endmacro()

function(_weir_compile target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src"
                                               "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${target} PRIVATE weir_flags weir_usage)
  if(weir_lto)
    target_compile_options(${target} PRIVATE -flto=auto -ffat-lto-objects)
  endif()
endfunction()

# weir_precompile(<target> <pch> FLAGS ... LINK ... HEADERS ...): the first target that names <pch> has it made, the others
# use it; FLAGS and LINK are those of all of them. Only headers that are not ours are in it: a file that forgets one of
# ours compiles in no preset.
function(weir_precompile target pch)
  cmake_parse_arguments(ARG "" "" "FLAGS;LINK;HEADERS" ${ARGN})
  if(NOT WEIR_PCH)
    return()
  endif()
  if(NOT TARGET ${pch})
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${pch}.cc" CONTENT "")
    add_library(${pch} OBJECT "${PROJECT_BINARY_DIR}/${pch}.cc")
    _weir_compile(${pch})
    target_compile_options(${pch} PRIVATE ${ARG_FLAGS})
    target_link_libraries(${pch} PRIVATE weir_system ${ARG_LINK})
    target_precompile_headers(${pch} PRIVATE ${ARG_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

function(weir_library name)
  _weir_parse(${ARGN})
  if(NOT ARG_SOURCES)  # headers only
    add_library(weir_${name} INTERFACE)
    target_link_libraries(weir_${name} INTERFACE ${ARG_DEPS} ${ARG_LINK} weir_system)
    return()
  endif()
  add_library(weir_${name} STATIC ${ARG_SOURCES})
  _weir_compile(weir_${name})
  weir_precompile(weir_${name} weir_pch
    HEADERS <algorithm> <array> <atomic> <chrono> <coroutine> <cstddef> <cstdint> <cstring> <expected> <functional> <memory>
            <mutex> <optional> <span> <string> <string_view> <utility> <vector>)
  target_link_libraries(weir_${name} PUBLIC ${ARG_DEPS} ${ARG_LINK} weir_system)
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/src/")
    set_property(GLOBAL APPEND PROPERTY WEIR_FOLDERS weir_${name})
  endif()
endfunction()

# The library that applications link: the objects of all folders of src.
function(weir_aggregate)
  get_property(folders GLOBAL PROPERTY WEIR_FOLDERS)
  set(objects "")
  foreach(folder IN LISTS folders)
    list(APPEND objects "$<TARGET_OBJECTS:${folder}>")
  endforeach()
  if(NOT objects)
    return()
  endif()
  add_library(weir ${objects})
  add_library(weir::weir ALIAS weir)
  set_target_properties(weir PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION 0)
  target_include_directories(weir INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                            "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(weir PUBLIC weir_usage PRIVATE weir_system)
  target_link_libraries(weir INTERFACE "$<BUILD_INTERFACE:$<LINK_ONLY:weir_flags>>")
endfunction()

# With LIBRARY the program sees what an installed weir offers, and nothing of src.
function(weir_program name)
  _weir_parse(${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_LIBRARY)
    target_link_libraries(${name} PRIVATE weir weir_flags ${ARG_LINK})
    if(weir_lto)
      target_compile_options(${name} PRIVATE -flto=auto -ffat-lto-objects)
    endif()
  else()
    _weir_compile(${name})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LINK} weir_system)
  endif()
  if(weir_lto)
    target_link_options(${name} PRIVATE -O3 -flto=auto)
  endif()
endfunction()

# The target tests-LABEL builds just what the tests with that label need.
function(weir_needed_by_label name)
  foreach(label IN LISTS ARGN)
    if(NOT TARGET tests-${label})
      add_custom_target(tests-${label})
    endif()
    add_dependencies(tests-${label} ${name})
  endforeach()
endfunction()

function(weir_test name)
  _weir_parse(${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  if(NOT WEIR_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  _weir_compile_without_lto(${name})
  if(NOT ARG_OPTIMISED)  # what an optimiser may leave out is tested as users get it
    target_compile_options(${name} PRIVATE ${WEIR_TEST_FLAGS})
    # Programs are compiled with -fPIE, which what is precompiled for them must be too. No more than tests include anyway:
    # what a test forgets to include is seen.
    weir_precompile(${name} weir_test_pch FLAGS -fPIE ${WEIR_TEST_FLAGS} LINK GTest::gtest HEADERS <gtest/gtest.h>)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LINK} weir_system GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_LIST ${name}_cases
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  weir_needed_by_label(${name} ${ARG_LABELS})
  if(ARG_LABELS)  # gtest_discover_tests itself would lose all labels but one
    set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
    file(WRITE "${labels_file}" "foreach(case IN LISTS ${name}_cases)
  set_tests_properties(\"\${case}\" PROPERTIES LABELS \"${ARG_LABELS}\")
endforeach()
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
  endif()
endfunction()

function(_weir_compile_without_lto target)
  set(weir_lto_wanted ${weir_lto})
  set(weir_lto OFF)
  _weir_compile(${target})
  if(weir_lto_wanted)
    target_link_options(${target} PRIVATE -fno-lto)
  endif()
endfunction()

# A libFuzzer target under WEIR_FUZZ. Otherwise a test that replays the corpus and seeded mutations of it.
function(weir_fuzz name)
  _weir_parse(${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  set(corpus "")
  if(ARG_CORPUS)
    cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE corpus)
  endif()
  if(WEIR_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    _weir_compile_without_lto(${name})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LINK} weir_system)
    file(APPEND "${PROJECT_BINARY_DIR}/fuzz-targets.txt" "${name} ${CMAKE_CURRENT_BINARY_DIR}/${name} ${corpus}\n")
  elseif(WEIR_BUILD_TESTS)
    if(NOT TARGET weir_fuzz_replay)  # compiled once for all of them
      add_library(weir_fuzz_replay OBJECT "${PROJECT_SOURCE_DIR}/cmake/fuzz_replay.cc")
      _weir_compile_without_lto(weir_fuzz_replay)
    endif()
    add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:weir_fuzz_replay>)
    _weir_compile_without_lto(${name})
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} ${ARG_LINK} weir_system)
    if(NOT ARG_MUTATIONS)
      set(ARG_MUTATIONS 20000)
    endif()
    add_test(NAME ${name} COMMAND ${name} --mutations=${ARG_MUTATIONS} ${corpus})
    set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS "fuzz;${ARG_LABELS}")
  endif()
endfunction()
if(WEIR_FUZZ)
  file(WRITE "${PROJECT_BINARY_DIR}/fuzz-targets.txt" "")
endif()

function(weir_bench name)
  _weir_parse(${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  if(NOT WEIR_BUILD_BENCH)
    return()
  endif()
  weir_program(${name} SOURCES ${ARG_SOURCES} DEPS ${ARG_DEPS} LINK ${ARG_LINK} benchmark::benchmark
               benchmark::benchmark_main)
endfunction()
