#include "device/platform.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "device/device.hpp"
#include "device/error.hpp"

namespace pto::a2a3 {
namespace {

DeviceProgram& device_of(void* self) {
  return *static_cast<DeviceProgram*>(self);
}

// Memory of the AICPU process. Huge pages would make touched() count memory that was not used.
void* reserve(void*, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  return memory;
}

void release(void*, void* memory, size_t bytes) {
  munmap(memory, bytes);
}

// Memory for which the system returns no information counts as touched.
size_t touched(void*, const void* memory, size_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* first = static_cast<char*>(const_cast<void*>(memory));
  size_t count = 0;
  for (size_t done = 0; done < bytes;) {
    unsigned char present[1024];
    const size_t most = page * sizeof present;
    const size_t length = bytes - done < most ? bytes - done : most;
    if (mincore(first + done, length, present) != 0) std::memset(present, 1, sizeof present);
    for (size_t i = 0; i < (length + page - 1) / page; ++i) count += present[i] & 1;
    done += length;
  }
  return count * page;
}

pto_status allocate_for(DeviceProgram& device, Owner owner, size_t bytes, uint64_t* address) {
  Pool& pool = device.pool();
  const pto_status status = pool.allocate(bytes, owner, address);
  if (status == PTO_OK) return status;
  pto_error cause;
  fail(cause, status, "the device has ", pool.bytes(), " bytes of memory for runs, of which ",
       pool.used(), " are in use; ", uint64_t{bytes}, " more do not fit");
  cause.value = bytes;
  cause.limit = pool.bytes();
  device.note_cause(cause);
  return status;
}

pto_status allocate(void* self, size_t bytes, uint64_t* address) {
  return allocate_for(device_of(self), Owner::run, bytes, address);
}

pto_status allocate_ring(void* self, size_t bytes, uint64_t* address) {
  return allocate_for(device_of(self), Owner::variant, bytes, address);
}

pto_status free_memory(void* self, uint64_t address) {
  const pto_status status = device_of(self).pool().free(address);
  if (status == PTO_OK) return status;
  pto_error cause;
  fail(cause, status, "no buffer of the device starts at ", engine::Address{address});
  device_of(self).note_cause(cause);
  return status;
}

// For a variant on the device, the memory of the AICPU process is that of the host.
pto_status copy_in(void* self, uint64_t address, const void* host, size_t bytes) {
  void* device = reinterpret_cast<void*>(address);
  std::memcpy(device, host, bytes);
  Aicpu::clean(device, bytes);
  pto_run_report& copies = device_of(self).pool().copies();
  ++copies.copies_in;
  copies.bytes_in += bytes;
  return PTO_OK;
}

pto_status copy_out(void* self, void* host, uint64_t address, size_t bytes) {
  void* device = reinterpret_cast<void*>(address);
  Aicpu::invalidate(device, bytes);
  std::memcpy(host, device, bytes);
  pto_run_report& copies = device_of(self).pool().copies();
  ++copies.copies_out;
  copies.bytes_out += bytes;
  return PTO_OK;
}

// The backend has no checking mode, so a variant does not call these.
pto_status check_value(void*, uint64_t, pto_error*) {
  return PTO_OK;
}

pto_status check_range(void*, uint64_t, size_t, pto_error*) {
  return PTO_OK;
}

pto_status lend(void*, uint64_t, size_t, pto_error*) {
  return PTO_OK;
}

pto_status upload_kernel(void*, int32_t, const void*, size_t, uint64_t*) {
  return PTO_ERROR_UNSUPPORTED;
}

pto_status resolve(void* self, uint64_t library, const char* symbol, void** address) {
  *address = device_of(self).loader().find(library, symbol);
  return *address != nullptr ? PTO_OK : PTO_ERROR_LOAD;
}

void dispatch(void* self, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
  device_of(self).current_run().dispatch(thread, batch, count);
}

void poll(void* self, uint32_t thread, pto_poll_result* result) {
  device_of(self).current_run().poll(thread, result);
}

void fault(void* self, uint32_t core, pto_error* error) {
  device_of(self).current_run().cores().describe_fault(core, *error);
}

void wake(void* self, uint32_t thread) {
  device_of(self).current_run().wake(thread);
  Aicpu::changed();
}

pto_status wait(void* self, const uint32_t* word, uint32_t expected) {
  return device_of(self).current_run().wait(word, expected);
}

void notify(void*, const uint32_t*) {
  Aicpu::changed();
}

uint64_t now(void*) {
  return Aicpu::now_ns();
}

void yield(void*, uint32_t) {}

void order(void*, uint32_t, uint64_t, uint64_t) {}

void log(void* self, int32_t level, const char* message) {
  device_of(self).log().write(level, message);
}

}  // namespace

bool can_plan() {
  constexpr size_t kSparse = size_t{1} << 34, kPart = size_t{1} << 20;
  void* memory = reserve(nullptr, kSparse);
  if (memory == nullptr) return false;
  char* part = static_cast<char*>(memory) + kSparse / 2;
  const size_t before = touched(nullptr, part, kPart);
  *static_cast<volatile char*>(part) = 1;
  const size_t after = touched(nullptr, part, kPart);
  release(nullptr, memory, kSparse);
  return before == 0 && after == static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

pto_platform make_platform(DeviceProgram& device) {
  pto_platform table{};
  table.abi_version = PTO_ABI_VERSION;
  table.struct_size = sizeof table;
  table.self = &device;
  table.topology = &device.current_run().topology();
  table.clock = PTO_CLOCK_NOW;
  table.reserve = reserve;
  table.release = release;
  table.touched = touched;
  table.allocate = allocate;
  table.free = free_memory;
  table.allocate_ring = allocate_ring;
  table.copy_in = copy_in;
  table.copy_out = copy_out;
  table.check_value = check_value;
  table.check_range = check_range;
  table.lend = lend;
  table.upload_kernel = upload_kernel;
  table.resolve = resolve;
  table.dispatch = dispatch;
  table.poll = poll;
  table.fault = fault;
  table.wake = wake;
  table.wait = wait;
  table.notify = notify;
  table.now = now;
  table.yield = yield;
  table.order = order;
  table.log = log;
  return table;
}

}  // namespace pto::a2a3
