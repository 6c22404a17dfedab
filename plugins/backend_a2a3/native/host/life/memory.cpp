#include "life/memory.hpp"

namespace pto::a2a3 {

using namespace cann;

namespace {

void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

}  // namespace

pto_status CardMemory::allocate(size_t bytes, uint64_t* address, pto_error* error) {
  const auto lock = session_.lock();
  void* block = nullptr;
  pto_status status = session_.enter(error);
  if (status == PTO_OK) {
    status =
        session_.call(error, session_.functions().aclrtMalloc, &block, bytes, int32_t{kHugeFirst});
  }
  *address = reinterpret_cast<uint64_t>(block);
  return status;
}

pto_status CardMemory::free(uint64_t address, pto_error* error) {
  const auto lock = session_.lock();
  const pto_status status = session_.enter(error);
  if (status != PTO_OK) return status;
  return session_.call(error, session_.functions().aclrtFree, pointer(address));
}

pto_status CardMemory::copy(void* target, const void* source, size_t bytes, int32_t kind,
                            pto_error* error) {
  if (bytes == 0) return PTO_OK;
  const auto lock = session_.lock();
  const pto_status status = session_.enter(error);
  if (status != PTO_OK) return status;
  return session_.call(error, session_.functions().aclrtMemcpy, target, bytes, source, bytes, kind);
}

pto_status CardMemory::copy_in(uint64_t address, const void* host, size_t bytes, pto_error* error) {
  return copy(pointer(address), host, bytes, kHostToDevice, error);
}

pto_status CardMemory::copy_out(void* host, uint64_t address, size_t bytes, pto_error* error) {
  return copy(host, pointer(address), bytes, kDeviceToHost, error);
}

pto_status CardMemory::fill(uint64_t address, uint8_t value, size_t bytes, pto_error* error) {
  if (bytes == 0) return PTO_OK;
  const auto lock = session_.lock();
  const pto_status status = session_.enter(error);
  if (status != PTO_OK) return status;
  return session_.call(error, session_.functions().aclrtMemset, pointer(address), bytes,
                       int32_t{value}, bytes);
}

pto_status CardMemory::usage(size_t* unused, size_t* total, pto_error* error) {
  const auto lock = session_.lock();
  const pto_status status = session_.enter(error);
  if (status != PTO_OK) return status;
  return session_.call(error, session_.functions().aclrtGetMemInfo, int32_t{kHbmMemory}, unused,
                       total);
}

}  // namespace pto::a2a3
