# pto_add_orchestrations(<variant> <include> <headers> <source> <entry>...): builds a library
# <variant>_<entry> for each entry of a test's source, as the toolchain builds the orchestration of
# a case. `include` is the include folder of the variant's plugin,
# and `headers` its folder with the headers of the interface.
#
# The source is compiled once. It declares `selected_entry`, and its macro ENTRY defines a function
# `call_<entry>` of the same type. The linker gives each library its function for `selected_entry`.
function(pto_add_orchestrations variant include headers source)
  set(objects ${variant}_entries)
  set(unit "${CMAKE_CURRENT_BINARY_DIR}/${objects}.cpp")
  list(TRANSFORM ARGN REPLACE "(.+)" "ENTRY(\\1)" OUTPUT_VARIABLE functions)
  list(JOIN functions "\n" functions)
  file(CONFIGURE OUTPUT "${unit}" CONTENT "#define PTO_ORCHESTRATION_ENTRY selected_entry
#include \"${CMAKE_CURRENT_SOURCE_DIR}/${source}\"
${functions}
#include \"${include}/${headers}/entry_wrapper.hpp\"
")
  add_library(${objects} OBJECT "${unit}")
  target_include_directories(${objects} PRIVATE "${include}/${headers}" "${include}/calls")
  target_link_libraries(${objects} PRIVATE pto_core::abi)
  target_compile_options(${objects} PRIVATE -Wall -Wextra -Werror)
  set_target_properties(
    ${objects} PROPERTIES CXX_STANDARD 17 CXX_VISIBILITY_PRESET hidden
                          POSITION_INDEPENDENT_CODE ON)
  foreach(entry IN LISTS ARGN)
    set(target ${variant}_${entry})
    add_library(${target} MODULE $<TARGET_OBJECTS:${objects}>)
    target_link_options(${target} PRIVATE "LINKER:--defsym=selected_entry=call_${entry}")
    set_target_properties(${target} PROPERTIES PREFIX "" LINKER_LANGUAGE CXX)
  endforeach()
endfunction()
