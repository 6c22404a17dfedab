// The NumPy C API, shared by all sources of the module. numpy_import.cpp imports it.
#pragma once

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL pto_core_numpy_api
#ifndef PTO_CORE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif

#include <Python.h>
#include <numpy/arrayobject.h>

namespace pto::core {

// Return -1 with a Python exception set if NumPy cannot be imported, otherwise 0.
int import_numpy_table();

}  // namespace pto::core
