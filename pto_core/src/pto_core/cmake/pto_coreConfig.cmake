# find_package(pto_core CONFIG REQUIRED) provides the target pto_core::abi, the headers of the
# native ABI. The second path below is their location in an editable install.

if(NOT TARGET pto_core::abi)
  set(_pto_core_candidates
    "${CMAKE_CURRENT_LIST_DIR}/../include"
    "${CMAKE_CURRENT_LIST_DIR}/../../../include"
  )
  set(_pto_core_include "")
  foreach(_candidate IN LISTS _pto_core_candidates)
    if(NOT _pto_core_include AND EXISTS "${_candidate}/pto/abi/version.h")
      get_filename_component(_pto_core_include "${_candidate}" ABSOLUTE)
    endif()
  endforeach()
  if(NOT _pto_core_include)
    message(FATAL_ERROR "ptorun-core is installed without its headers; reinstall it. "
                        "Looked in: ${_pto_core_candidates}")
  endif()
  add_library(pto_core::abi INTERFACE IMPORTED)
  set_target_properties(pto_core::abi PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_pto_core_include}"
  )
  unset(_pto_core_candidates)
  unset(_pto_core_include)
endif()

include("${CMAKE_CURRENT_LIST_DIR}/pto_plugin.cmake")
