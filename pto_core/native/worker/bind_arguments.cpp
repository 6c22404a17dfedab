// Arguments of tasks in Python: TaskArgs, TaskArgsView, ContinuousTensor, TensorArgType.

#include "arguments/continuous_tensor.hpp"
#include "arguments/task_args.hpp"
#include "arguments/visible_memory.hpp"
#include "bindings.hpp"
#include "data_types.hpp"

namespace pto::worker {

void bind_arguments(nb::module_& module) {
  core::import_numpy();
  bind_continuous_tensor(module);
  bind_task_args(module);
  bind_task_args_view(module);
  module.def(
      "is_private",
      [](uint64_t address, uint64_t bytes) {
        return SharedRanges::of_process().of(address, bytes) == Sharing::kPrivate;
      },
      nb::arg("address"), nb::arg("bytes"),
      "Return whether this process has memory at an address that no other process has.");
}

}  // namespace pto::worker
