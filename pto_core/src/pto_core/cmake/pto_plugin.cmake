# Build settings that plugins share. pto_coreConfig.cmake includes this file.

# Declares the options of a plugin's project and sets its build type and sanitizers.
macro(pto_plugin_settings)
  option(BUILD_TESTING "Build the native tests" OFF)
  set(PTO_SANITIZE "" CACHE STRING "Sanitizers for all targets: address,undefined or thread")
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  if(PTO_SANITIZE)
    add_compile_options(
      -fsanitize=${PTO_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${PTO_SANITIZE})
  endif()
endmacro()

# pto_runtime_target(<target> [<plant>...]): compiles a target under the rules of the AICPU: no
# exceptions, no run-time type information, no C++ library. Each <plant> adds an option
# PTO_PLANT_<plant>, which compiles a known bug into the library; tests check that it is found.
function(pto_runtime_target target)
  set_target_properties(
    ${target}
    PROPERTIES CXX_STANDARD 17
               CXX_STANDARD_REQUIRED ON
               CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               LINKER_LANGUAGE C
               POSITION_INDEPENDENT_CODE ON)
  target_compile_options(
    ${target} PRIVATE -fno-exceptions -fno-rtti -fno-threadsafe-statics -Wall -Wextra -Wpedantic
                      -Werror $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_link_libraries(${target} PUBLIC pto_core::abi)
  foreach(plant IN LISTS ARGN)
    option(PTO_PLANT_${plant} "Compile in a known bug, for tests" OFF)
    if(PTO_PLANT_${plant})
      target_compile_definitions(${target} PRIVATE PTO_PLANT_${plant})
    endif()
  endforeach()
endfunction()
