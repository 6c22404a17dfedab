// The object `rt` of a Python orchestration: the submit path of the runtime, for one run.
//
// Call with the GIL held, on the thread that called Device.run. A call creates no Python object
// except the returned task id. After the run, every call raises UsageError.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device_array.hpp"
#include "kernel_table.hpp"
#include "pto/abi/runtime.h"

namespace pto::core {

namespace nb = nanobind;

// The position of the Python code that called into this module.
struct SourcePosition {
  const char* file = nullptr;  // NULL if there is no Python code
  int line = -1;
};

// Finds positions and caches them by code object and instruction. A program makes most calls from
// few places, and reading a line number from a code object takes longer than a submit.
class Callers {
 public:
  // Return the position of the innermost Python code; `file` lives as long as this object. Call
  // with the GIL held.
  SourcePosition here();

 private:
  struct Known {
    nb::object code;
    int instruction = -1;
    SourcePosition place;
  };

  SourcePosition look_up(PyFrameObject* frame, nb::handle code);

  static constexpr size_t kRemembered = 64;

  std::array<Known, kRemembered> known_;
  std::unordered_set<std::string> files_;
};

class Run;

// A kernel that this graph uses.
struct KernelUse {
  const LoadedKernel* kernel = nullptr;
  int32_t func_id = 0;
  // the signature of its last task, because the next task usually has the same; 0: none
  uint64_t cookie = 0;
};

class Graph {
 public:
  explicit Graph(Run& run);
  ~Graph() { deactivate(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // For runtimes in which the user adds the edges.
  int64_t add_task(nb::handle kernel, nb::handle arguments);
  void add_successor(nb::handle from, nb::handle to);
  void publish(nb::handle task);

  // For runtimes that derive the edges from the accesses of the tasks. The arguments are those of a
  // vectorcall: the kernel, the task's arguments, then the values of the keyword arguments `names`.
  int64_t submit(PyObject* const* arguments, size_t count, PyObject* names, bool is_block);
  void add_dep(nb::handle from, nb::handle to);
  nb::object tensor(nb::handle shape, nb::handle dtype);
  nb::object pipe();
  void scope_begin();
  // Return false if the runtime has latched an error. The caller must then call raise_latched().
  bool scope_end();
  int32_t allocate_cluster();
  bool free_cluster(nb::handle cluster);

  nb::object empty(nb::handle shape, nb::handle dtype);
  [[noreturn]] void raise_latched();
  // Raise UsageError if `rt` cannot be used now.
  Run& run();
  // Raise UnsupportedError if the runtime lacks the capability. The message names `call` and
  // `instead`.
  void require(uint32_t capability, const char* call, const char* instead);

  void deactivate();
  const CallSignature* signature(uint64_t cookie) const { return signatures_[cookie - 1].get(); }
  // Return the name of the kernel with this id in the graph, or an empty text.
  std::string kernel_name(int32_t func_id) const;

 private:
  KernelUse& use_of(nb::handle kernel);
  KernelUse& first_use(nb::handle kernel);
  KernelUse& use_of_id(nb::handle func_id);
  int32_t free_func_id() const;
  uint64_t cookie_of(KernelUse& use, const ArgumentSpec* specs, size_t count);
  int64_t checked(int64_t id);
  int64_t task_id(nb::handle task, const char* what) const;
  void add_edge(int64_t from, int64_t to);

  Run* run_;
  std::shared_ptr<RunMark> mark_ = std::make_shared<RunMark>();
  PyObject* last_kernel_ = nullptr;
  KernelUse* last_use_ = nullptr;
  std::unordered_map<PyObject*, KernelUse> uses_;
  std::vector<nb::object> kept_;  // the keys of uses_
  std::unordered_map<int64_t, KernelUse> uses_by_id_;
  std::vector<std::unique_ptr<CallSignature>> signatures_;
  std::map<CallSignature, uint64_t> cookies_;
  Callers callers_;  // file names to which the runtime keeps pointers
};

void bind_graph(nb::module_& module);

}  // namespace pto::core
