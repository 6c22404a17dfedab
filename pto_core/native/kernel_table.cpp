#include "kernel_table.hpp"

namespace pto::core {

LoadedKernel* KernelTable::find(PyObject* callable) const {
  auto found = kernels_.find(callable);
  return found == kernels_.end() ? nullptr : found->second.get();
}

LoadedKernel* KernelTable::add(std::unique_ptr<LoadedKernel> kernel) {
  PyObject* key = kernel->callable.ptr();
  return kernels_.insert_or_assign(key, std::move(kernel)).first->second.get();
}

const LoadedKernel* KernelTable::at_address(uint64_t address) const {
  for (const auto& [callable, kernel] : kernels_)
    if (kernel->address == address) return kernel.get();
  return nullptr;
}

int KernelTable::traverse(visitproc visit, void* arg) const {
  for (const auto& [callable, kernel] : kernels_) {
    Py_VISIT(kernel->callable.ptr());
    Py_VISIT(kernel->function.ptr());
  }
  return 0;
}

void KernelTable::abandon() {
  for (auto& [callable, kernel] : kernels_) kernel.release();
  kernels_.clear();
}

}  // namespace pto::core
