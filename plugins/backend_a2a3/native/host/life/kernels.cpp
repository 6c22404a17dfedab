#include "life/kernels.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "error.hpp"
#include "life/linked_code.hpp"

namespace pto::a2a3 {

namespace {

constexpr const char* kEntry = "kernel_entry";
constexpr uint64_t kPageBytes = 4096;

}  // namespace

pto_status Kernels::load(const pto_kernel_source& source, uint64_t* address, pto_error* error) {
  if (source.path == nullptr) {
    return fail(error, PTO_ERROR_UNSUPPORTED,
                "kernel %s is a Python function, which cannot run on a card; use a C++ kernel",
                source.name);
  }
  std::ifstream stream(source.path, std::ios::binary);
  const std::string file(std::istreambuf_iterator<char>(stream), {});
  if (file.empty()) {
    return fail(error, PTO_ERROR_LOAD, "the file %s cannot be read or is empty", source.path);
  }
  if (!is_shared_library(file)) return upload(file, source, address, error);
  if (!card_.session().driver().is_fake()) {
    return fail(error, PTO_ERROR_LOAD,
                "kernel %s is a shared library, which a core cannot run; build it with the recipe "
                "of the backend",
                source.name);
  }
  uint64_t handle = 0;
  const pto_status status =
      aicpu_.load(PTO_A2A3_KERNEL, file, source.symbol, &handle, address, error);
  if (status == PTO_OK) kernels_[*address] = handle;
  return status;
}

pto_status Kernels::upload(const std::string& file, const pto_kernel_source& source,
                           uint64_t* address, pto_error* error) {
  LinkedCode code;
  const char* entry = source.symbol != nullptr ? source.symbol : kEntry;
  pto_status status = read_linked_code(file, source.name, entry, &code, error);
  if (status != PTO_OK) return status;
  CardMemory& memory = card_.memory();
  const uint64_t alignment = std::max(code.alignment, kPageBytes);
  const uint64_t pages = (code.bytes.size() + kPageBytes - 1) / kPageBytes;
  uint64_t block = 0;
  status = memory.allocate(pages * kPageBytes + alignment, &block, error);
  if (status != PTO_OK) return status;
  const uint64_t start = (block + alignment - 1) / alignment * alignment;
  status = memory.copy_in(start, code.bytes.data(), code.bytes.size(), error);
  if (status != PTO_OK) {
    memory.free(block, nullptr);
    return status;
  }
  *address = start + code.entry;
  kernels_[*address] = 0;
  blocks_.push_back(block);
  has_new_code_ = true;
  return PTO_OK;
}

pto_status Kernels::unload(uint64_t address) {
  const auto found = kernels_.find(address);
  if (found == kernels_.end()) return PTO_ERROR_USAGE;
  const uint64_t library = found->second;
  kernels_.erase(found);
  return library != 0 ? aicpu_.unload(library, nullptr) : PTO_OK;
}

pto_status Kernels::prepare_run(pto_error* error) {
  if (!has_new_code_) return PTO_OK;
  const pto_status status = card_.renew_core_stream(error);
  has_new_code_ = status != PTO_OK;
  return status;
}

void Kernels::close() {
  for (const uint64_t block : blocks_) {
    if (card_.is_usable()) card_.memory().free(block, nullptr);
  }
  blocks_.clear();
  kernels_.clear();
}

}  // namespace pto::a2a3
