// Arguments of tasks in Python: TaskArgs, TaskArgsView, ContinuousTensor, TensorArgType.

#include "arguments/continuous_tensor.hpp"
#include "arguments/task_args.hpp"
#include "bindings.hpp"
#include "data_types.hpp"

namespace pto::worker {

void bind_arguments(nb::module_& module) {
  core::import_numpy();
  bind_continuous_tensor(module);
  bind_task_args(module);
  bind_task_args_view(module);
}

}  // namespace pto::worker
