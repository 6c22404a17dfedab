// What a Python orchestration calls `rt`: the submit path of the runtime, for the time of one run.
//
// Used with the GIL held, on the thread that called Device.run. A call makes no Python object but
// the task id that it returns. Afterwards every call raises UsageError.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernel_table.hpp"

namespace pto::core {

class Run;

class Graph {
 public:
  explicit Graph(Run& run);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int64_t add_task(nb::handle kernel, nb::handle arguments);
  void add_successor(nb::handle from, nb::handle to);
  void publish(nb::handle task);
  nb::object empty(nb::handle shape, nb::handle dtype);
  [[noreturn]] void scope();

  void deactivate() { run_ = nullptr; }
  const CallSignature* signature(uint64_t index) const { return signatures_[index].get(); }
  // The name of the kernel that has this id in the graph, empty when there is none.
  std::string kernel_name(int32_t func_id) const;

 private:
  struct Use {
    const LoadedKernel* kernel = nullptr;
    int32_t func_id = 0;
    uint64_t signature = 0;  // the one of its last task, most likely that of the next
    bool has_signature = false;
  };

  Run& run();
  Use& use_of(nb::handle kernel);
  Use& first_use(nb::handle kernel);
  Use& use_of_id(nb::handle func_id);
  int32_t free_func_id() const;
  uint64_t signature_index(Use& use, const ArgumentSpec* specs, size_t count);
  int64_t submit(const pto_task& task);
  int64_t task_id(nb::handle task, const char* what) const;

  Run* run_;
  PyObject* last_kernel_ = nullptr;
  Use* last_use_ = nullptr;
  std::unordered_map<PyObject*, Use> uses_;
  std::vector<nb::object> kept_;  // the keys of uses_
  std::unordered_map<int64_t, Use> uses_by_id_;
  std::vector<std::unique_ptr<CallSignature>> signatures_;
  std::map<CallSignature, uint64_t> signature_indices_;
};

void bind_graph(nb::module_& module);

}  // namespace pto::core
