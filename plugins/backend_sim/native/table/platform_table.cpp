#include "table/platform_table.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "device.hpp"
#include "pto/host/backend_table.hpp"
#include "pto/host/runtime_log.hpp"
#include "waiting.hpp"

namespace pto::sim {
namespace {

// Makes a call and stores its explanation in the device, because the signatures of some calls
// cannot return it.
template <typename Call>
pto_status explained(void* self, Call call) noexcept {
  pto_error cause{};
  const pto_status status = host::guarded(&cause, [&] { return call(device_of(self), &cause); });
  if (status != PTO_OK) device_of(self).note_cause(cause);
  return status;
}

pto_status allocate(void* self, size_t bytes, uint64_t* address) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    const pto_status status = device.memory().allocate(bytes, Owner::run, address, cause);
    if (status != PTO_OK) return status;
    device.run().cores().report_range({0, *address, *address + bytes, PTO_MEASURED_ALLOCATED, 0});
    return status;
  });
}

pto_status allocate_ring(void* self, size_t bytes, uint64_t* address) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    return device.memory().allocate(bytes, Owner::runtime, address, cause);
  });
}

pto_status free_memory(void* self, uint64_t address) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    return device.memory().free(address, cause);
  });
}

pto_measured_range copied(uint32_t kind, uint64_t device, const void* host, size_t bytes) {
  const auto host_address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(host));
  return {host_address, device, device + bytes, kind, 0};
}

pto_status copy_in(void* self, uint64_t address, const void* host, size_t bytes) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    const pto_status status = device.check_host(host, bytes, cause);
    if (status != PTO_OK) return status;
    device.run().cores().report_range(copied(PTO_MEASURED_COPIED_IN, address, host, bytes));
    return device.tracer().record_copy(PTO_TRACE_COPY_IN, bytes, [&] {
      return device.memory().copy_in(address, host, bytes, cause);
    });
  });
}

pto_status copy_out(void* self, void* host, uint64_t address, size_t bytes) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    device.attend_to_copies();
    const pto_status status = device.check_host(host, bytes, cause);
    if (status != PTO_OK) return status;
    device.run().cores().report_range(copied(PTO_MEASURED_COPIED_OUT, address, host, bytes));
    return device.tracer().record_copy(PTO_TRACE_COPY_OUT, bytes, [&] {
      return device.memory().copy_out(host, address, bytes, cause);
    });
  });
}

pto_status check_value(void* self, uint64_t value, pto_error* error) {
  return host::guarded(error, [&] { return device_of(self).check_value(value, error); });
}

pto_status check_range(void* self, uint64_t address, size_t bytes, pto_error* error) {
  return host::guarded(error, [&] { return device_of(self).check_range(address, bytes, error); });
}

pto_status lend(void* self, uint64_t address, size_t bytes, pto_error* error) {
  return host::guarded(error, [&] { return device_of(self).memory().lend(address, bytes, error); });
}

pto_status upload_kernel(void* self, int32_t func_id, const void* bytes, size_t length,
                         uint64_t* address) {
  return explained(self, [&](SimDevice& device, pto_error* cause) {
    return device.loader().upload_kernel(func_id, bytes, length, address, cause);
  });
}

pto_status resolve(void* self, uint64_t library, const char* symbol, void** address) {
  return device_of(self).loader().libraries().resolve(library, symbol, address);
}

void dispatch(void* self, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
  device_of(self).run().dispatch(thread, batch, count);
}

void poll(void* self, uint32_t thread, pto_poll_result* result) {
  device_of(self).run().poll(thread, result);
}

void fault(void* self, uint32_t core, pto_error* error) {
  *error = device_of(self).run().cores().fault(core);
}

void wake(void* self, uint32_t thread) {
  device_of(self).engine().wake(thread);
}

pto_status wait(void* self, const uint32_t* word, uint32_t expected) {
  SimDevice& device = device_of(self);
  device.engine().wait_for_word(word, expected);
  return device.wait_status(word, expected);
}

void notify(void* self, const uint32_t*) {
  device_of(self).engine().notify();
}

void yield(void* self, uint32_t point) {
  device_of(self).engine().yield(point);
}

void order(void* self, uint32_t event, uint64_t a, uint64_t b) {
  device_of(self).engine().order(event, a, b);
}

void log(void* self, int32_t level, const char* message) {
  const Options& options = device_of(self).options();
  if (level < PTO_LOG_ALWAYS || level > options.log_level) return;
  host::write_log(level, message, options.log_json);
}

// The cheapest clock that all processors of this machine share.
uint32_t fastest_clock() noexcept {
#if defined(__x86_64__)
  constexpr unsigned kPowerManagement = 0x80000007, kInvariantTsc = 1u << 8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool is_known = __get_cpuid(kPowerManagement, &a, &b, &c, &d) != 0;
  return is_known && (d & kInvariantTsc) != 0 ? PTO_CLOCK_TSC : PTO_CLOCK_NOW;
#elif defined(__aarch64__)
  return PTO_CLOCK_CNTVCT;
#else
  return PTO_CLOCK_NOW;
#endif
}

}  // namespace

pto_platform make_platform(SimDevice& device, bool deterministic, bool timing) noexcept {
  pto_platform table = host::host_platform(&device, device.run().topology());
  table.deterministic = deterministic;
  table.clock = deterministic ? uint32_t{PTO_CLOCK_STEPS} : fastest_clock();
  // A runtime leaves gaps between the buffers of a ring in checking mode. If only the gaps are
  // wanted, the checks of the platform accept everything.
  table.checking = device.memory().checking() || device.options().gaps;
  table.timing = timing;
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
  table.yield = yield;
  table.order = order;
  table.log = log;
  return table;
}

}  // namespace pto::sim
