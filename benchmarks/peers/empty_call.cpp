// A Python extension with one function that accepts any arguments and does nothing: the floor of a
// call from Python into native code.
#include <Python.h>

namespace {

PyObject* call(PyObject*, PyObject* const*, Py_ssize_t) {
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL,
     "Do nothing."},
    {},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "empty_call", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_empty_call() {
  return PyModule_Create(&module);
}
