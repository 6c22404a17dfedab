#include "table/buffers.hpp"

#include "error.hpp"

namespace pto::a2a3 {

namespace {

constexpr uint64_t kAlignment = 1024;

}  // namespace

pto_status Buffers::allocate(size_t bytes, uint64_t* address, pto_error* error) {
  Buffer buffer = {0, bytes};
  const pto_status status = card_.memory().allocate(bytes + kAlignment, &buffer.base, error);
  if (status != PTO_OK) return status;
  *address = (buffer.base + kAlignment - 1) / kAlignment * kAlignment;
  buffers_[*address] = buffer;
  return PTO_OK;
}

pto_status Buffers::free(uint64_t address, pto_error* error) {
  const auto found = buffers_.find(address);
  if (found == buffers_.end()) {
    return fail(error, PTO_ERROR_ADDRESS, "no buffer of the device starts at 0x%llx",
                static_cast<unsigned long long>(address));
  }
  const pto_status status = card_.memory().free(found->second.base, error);
  if (status == PTO_OK) buffers_.erase(found);
  return status;
}

void Buffers::free_all() {
  for (const auto& [address, buffer] : buffers_) {
    if (card_.is_usable()) card_.memory().free(buffer.base, nullptr);
  }
  buffers_.clear();
}

pto_leak_report Buffers::describe() const {
  pto_leak_report report = {};
  for (const auto& [address, buffer] : buffers_) {
    if (report.buffers++ == 0) {
      report.first_address = address;
      report.first_bytes = buffer.bytes;
    }
    report.bytes += buffer.bytes;
  }
  return report;
}

}  // namespace pto::a2a3
