// The code that the hand-written Python types of this folder share.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <iterator>

namespace pto::worker {

namespace nb = nanobind;

// Run `call`. Convert a C++ exception to a Python exception and return null.
template <class Call>
PyObject* or_raise(Call call) {
  try {
    return call();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <class Function>
PyCFunction method_of(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

// The parts of a hand-written type. `construct` null: Python cannot construct it.
struct TypeParts {
  const char* name;
  const char* doc;
  void (*deallocate)(PyObject*);
  PyObject* (*show)(PyObject*);
  PyMethodDef* methods;
  PyGetSetDef* properties;
  vectorcallfunc construct = nullptr;
  newfunc construct_subtype = nullptr;  // null: Python cannot derive from it
  binaryfunc subscript = nullptr;       // null: object[key] is an error
};

// Add a type for `Object` to `module`. The type lives as long as the process.
template <class Object>
PyTypeObject* make_type(nb::module_& module, const TypeParts& parts) {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>(parts.doc)},
      {Py_tp_dealloc, reinterpret_cast<void*>(parts.deallocate)},
      {Py_tp_repr, reinterpret_cast<void*>(parts.show)},
      {Py_tp_methods, parts.methods},
      {Py_tp_getset, parts.properties},
      {0, nullptr},
      {0, nullptr},
      {0, nullptr},
  };
  PyType_Slot* last = std::end(slots) - 3;
  if (parts.subscript) *last++ = {Py_mp_subscript, reinterpret_cast<void*>(parts.subscript)};
  if (parts.construct_subtype)
    *last = {Py_tp_new, reinterpret_cast<void*>(parts.construct_subtype)};
  const unsigned long flags = Py_TPFLAGS_DEFAULT |
                              (parts.construct ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION) |
                              (parts.construct_subtype ? Py_TPFLAGS_BASETYPE : 0);
  PyType_Spec spec = {parts.name, sizeof(Object), 0, static_cast<unsigned>(flags), slots};
  PyObject* made = PyType_FromModuleAndSpec(module.ptr(), &spec, nullptr);
  if (!made) throw nb::python_error();
  auto* type = reinterpret_cast<PyTypeObject*>(made);
  type->tp_vectorcall = parts.construct;
  module.attr(nb::handle(made).attr("__name__")) = nb::handle(made);
  return type;
}

// Return a new, uninitialised object of `type`, or null with an exception set.
template <class Object>
Object* make_object(PyTypeObject* type) {
  return PyObject_New(Object, type);
}

template <class Object>
Object* as(PyObject* object) {
  return reinterpret_cast<Object*>(object);
}

inline void free_object(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

}  // namespace pto::worker
