# pto_add_orchestrations(<variant> <include> <header> <source> <entry>...): builds a library
# <variant>_<entry> for each entry of a test's source, as the toolchain builds the orchestration of
# a case, but not optimised, because each library contains all entries of the source. `include` is
# the include folder of the variant's plugin; `header` is what the source includes, and is compiled
# once for all libraries.
function(pto_add_orchestrations variant include header source)
  list(GET ARGN 0 first)
  foreach(entry IN LISTS ARGN)
    set(target ${variant}_${entry})
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "#define PTO_ORCHESTRATION_ENTRY ${entry}
#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"
#include \"${include}/${variant}/entry_wrapper.hpp\"
")
    add_library(${target} MODULE "${unit}")
    target_include_directories(${target} PRIVATE "${include}/${variant}" "${include}/calls")
    target_link_libraries(${target} PRIVATE pto_core::abi)
    target_compile_options(${target} PRIVATE -O0 -Wall -Wextra -Werror)
    set_target_properties(
      ${target} PROPERTIES PREFIX "" CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden DEFINE_SYMBOL "")
    if(entry STREQUAL first)
      target_precompile_headers(
        ${target}
        PRIVATE <cstdio> <stdexcept> <type_traits> <vector> "${include}/${variant}/${header}")
    else()
      target_precompile_headers(${target} REUSE_FROM ${variant}_${first})
    endif()
  endforeach()
endfunction()
