# Compiler settings that every target shares.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g -DNDEBUG")

set(AV_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(AV_THREAD_SAFETY "Check the lock annotations (clang)" OFF)

add_compile_options(-Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wshadow -Wvla
                    -Wno-unused-parameter -Werror=implicit-function-declaration -Werror=incompatible-pointer-types
                    -fno-strict-aliasing -fno-common -ftls-model=initial-exec
                    # a vector load of fields just stored one by one waits for the store buffer: 6 ns a message
                    -fno-tree-vectorize)
add_compile_definitions(_GNU_SOURCE)
include_directories(${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
if(AV_SANITIZE)
  add_compile_options(-fsanitize=${AV_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${AV_SANITIZE})
endif()
if(AV_THREAD_SAFETY)
  # What clang says of the sources is all that is wanted: no code, no libraries, no programs. Empty files stand in for them, so that ninja
  # compiles again what has changed, and only that.
  add_compile_options(-Wthread-safety -Wthread-safety-beta -Werror=thread-safety)
  set(CMAKE_C_COMPILE_OBJECT "<CMAKE_C_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -fsyntax-only <SOURCE>" "touch <OBJECT>")
  foreach(rule CMAKE_C_LINK_EXECUTABLE CMAKE_C_CREATE_SHARED_LIBRARY CMAKE_C_CREATE_SHARED_MODULE CMAKE_C_ARCHIVE_CREATE)
    set(${rule} "touch <TARGET>")
  endforeach()
  set(CMAKE_C_ARCHIVE_FINISH :)
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
include(CheckTypeSize)
set(CMAKE_EXTRA_INCLUDE_FILES infiniband/umad.h)
check_type_size("struct umad_ca_pair" AV_UMAD_CA_PAIR)
unset(CMAKE_EXTRA_INCLUDE_FILES)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
# RoCEv2's ICRC. The only library that what we build needs at run time, beside libc.
pkg_check_modules(ISAL QUIET IMPORTED_TARGET libisal)
if(NOT ISAL_FOUND)
  message(FATAL_ERROR "ISA-L is missing: it computes the CRCs. Debian's package is libisal-dev (scripts/packages installs it).")
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(AV_DOORS_DIR ${CMAKE_BINARY_DIR}/lib/anyverbs)
enable_testing()
