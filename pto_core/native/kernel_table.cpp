#include "kernel_table.hpp"

#include "errors.hpp"

namespace pto::core {

std::string LoadedKernel::describe_argument(size_t position) const {
  std::string text = "argument " + std::to_string(position);
  if (position < task.parameters.size()) text += " ('" + task.parameters[position].name + "')";
  return text + " of a task of kernel '" + name + "'";
}

std::optional<ScalarValue> LoadedKernel::scalar(size_t position, nb::handle object) const {
  const Tag declared = direction(position);
  const int code = position < task.parameters.size() ? task.parameters[position].code : kNoType;
  if (declared == Tag::kScalar || declared == Tag::kAny) {
    if (const auto frequent = frequent_scalar_of(object.ptr(), code)) return frequent;
  }
  if (declared == Tag::kScalar) {
    return declared_scalar_of(object, code, [&] { return describe_argument(position); });
  }
  std::optional<ScalarValue> scalar = scalar_of(object);
  if (scalar && declared != Tag::kAny) {
    raise_usage(describe_argument(position) + " is " + shown(object) + " of type " +
                type_text(object) +
                ", but its signature declares an array; pass a device array or change the "
                "signature");
  }
  return scalar;
}

void LoadedKernel::refuse_array(size_t position) const {
  raise_usage(describe_argument(position) +
              " is a device array, but its signature declares scalar; pass a number or change the "
              "signature");
}

void LoadedKernel::check_count(size_t count, size_t appended) const {
  const size_t most = task.parameters.size();
  const auto fits = [&](size_t passed) {
    return passed >= task.required && (task.takes_more || passed <= most);
  };
  if (fits(count) || fits(count + appended)) return;
  const std::string more = task.takes_more         ? " or more"
                           : most != task.required ? " to " + std::to_string(most)
                                                   : "";
  raise_usage("a task of kernel '" + name + "' has " + std::to_string(count) + " arguments" +
              (appended ? " and the two numbers of its block" : "") +
              ", but its signature accepts " + std::to_string(task.required) + more +
              "; pass as many arguments as it accepts");
}

LoadedKernel* LoadedKernels::find(PyObject* callable) const {
  auto found = kernels_.find(callable);
  return found == kernels_.end() ? nullptr : found->second.get();
}

LoadedKernel* LoadedKernels::add(std::unique_ptr<LoadedKernel> kernel) {
  PyObject* key = kernel->callable.ptr();
  return kernels_.insert_or_assign(key, std::move(kernel)).first->second.get();
}

const LoadedKernel* LoadedKernels::at_address(uint64_t address) const {
  for (const auto& [callable, kernel] : kernels_)
    if (kernel->address == address) return kernel.get();
  return nullptr;
}

int LoadedKernels::traverse(visitproc visit, void* arg) const {
  for (const auto& [callable, kernel] : kernels_) {
    Py_VISIT(kernel->callable.ptr());
    Py_VISIT(kernel->function.ptr());
  }
  return 0;
}

void LoadedKernels::abandon() {
  for (auto& [callable, kernel] : kernels_) kernel.release();
  kernels_.clear();
}

}  // namespace pto::core
