#include "life/session.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "error.hpp"
#include "pto/host/runtime_log.hpp"

namespace pto::a2a3 {

using namespace cann;

namespace {

constexpr std::chrono::seconds kSalvageTime{2};
constexpr int32_t kSettleMs = 1000;

// Returns whether a failure is the consequence of an earlier one.
bool is_cascade(const pto_error& failure) {
  const cann::CodeEntry* entry = cann::find_code(failure.vendor_code);
  return entry != nullptr && entry->cause == cann::Cause::kCascade;
}

void copy_call(const pto_error& from, pto_error& to) {
  std::memcpy(to.vendor_function, from.vendor_function, sizeof to.vendor_function);
  to.vendor_code = from.vendor_code;
}

}  // namespace

pto_status CardSession::select(int32_t device, pto_error* error) {
  pto_status status = driver_.check_process(error);
  if (status != PTO_OK) return status;
  device_ = device;
  status = call(error, functions().aclrtSetDevice, device);
  if (status == PTO_OK) {
    status = call(error, functions().aclrtGetCurrentContext, &context_);
    if (status != PTO_OK) reset(nullptr);
  }
  if (status != PTO_OK) first_ = {};  // a device that is not selected has no failure
  return status;
}

// Launches that a failure stops end before the forced reset.
pto_status CardSession::reset(pto_error* error) {
  const bool is_forced = is_poisoned();
  const auto& synchronise = functions().aclrtSynchronizeDeviceWithTimeout;
  // Without a context, select() has failed, and this thread has the default one.
  const bool can_settle = is_forced && synchronise.address != nullptr;
  if (can_settle &&
      (context_ == nullptr || functions().aclrtSetCurrentContext(context_) == cann::kSuccess)) {
    synchronise(kSettleMs);
  }
  context_ = nullptr;
  first_ = {};
  return call(error, is_forced ? functions().aclrtResetDeviceForce : functions().aclrtResetDevice,
              device_);
}

pto_status CardSession::enter(pto_error* error) {
  if (is_poisoned()) {
    fail(error, PTO_ERROR_LOST,
         "device %d is unusable because of an earlier failure; close it and open it again. The "
         "failure: %.700s",
         device_, first_.message);
    if (error != nullptr) copy_call(first_, *error);
    return PTO_ERROR_LOST;
  }
  if (!is_selected()) return fail(error, PTO_ERROR_USAGE, "the device is closed; open it first");
  const pto_status status = driver_.check_process(error);
  return status == PTO_OK ? call(error, functions().aclrtSetCurrentContext, context_) : status;
}

pto_status CardSession::report(const pto_error& failure, pto_error* error) {
  const bool has_cause = is_selected() && !is_poisoned() && is_cascade(failure);
  const pto_error found = has_cause ? find_cause(failure) : failure;
  if (cann::is_poison(failure.vendor_code) && !is_poisoned()) first_ = found;
  if (error != nullptr) *error = found;
  return found.status;
}

pto_status CardSession::lose(const pto_error& failure, pto_error* error) {
  if (!is_poisoned()) first_ = failure;
  if (error != nullptr) *error = first_;
  return first_.status;
}

// The driver may keep the thread that calls it for ever, so the call has a thread of its own.
bool CardSession::salvage(void* host, uint64_t address, size_t bytes) const {
  struct Copy {
    std::vector<char> bytes;
    std::promise<bool> is_made;
    std::atomic<bool> is_given_up = false;
  };
  const auto copy = std::make_shared<Copy>();
  copy->bytes.resize(bytes);
  std::future<bool> is_made = copy->is_made.get_future();
  try {
    std::thread([copy, address, context = context_, &functions = functions()] {
      // A reset may have destroyed the context since the caller stopped waiting.
      const bool is_selected =
          !copy->is_given_up.load() && functions.aclrtSetCurrentContext(context) == cann::kSuccess;
      const size_t count = copy->bytes.size();
      copy->is_made.set_value(is_selected &&
                              functions.aclrtMemcpy(copy->bytes.data(), count,
                                                    reinterpret_cast<const void*>(address), count,
                                                    cann::kDeviceToHost) == cann::kSuccess);
    }).detach();
  } catch (const std::system_error&) {
    return false;  // the system refuses a thread
  }
  if (is_made.wait_for(kSalvageTime) != std::future_status::ready) {
    copy->is_given_up = true;
    return false;
  }
  if (!is_made.get()) return false;
  std::memcpy(host, copy->bytes.data(), bytes);
  return true;
}

pto_error CardSession::find_cause(const pto_error& failure) const {
  for (const cann::Handle stream : streams_) {
    if (stream == nullptr) continue;
    pto_error found = {};
    int32_t state = 0;
    driver_.call(&found, functions().aclrtStreamQuery, stream, &state);
    if (found.status != PTO_OK && !is_cascade(found)) return found;
  }
  return failure;
}

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

void DeviceLog::open(uint64_t address, bool is_json) {
  address_ = address;
  is_json_ = is_json;
  read_ = dropped_ = 0;
  ring_ = std::make_unique<pto_a2a3_log>();
}

uint64_t DeviceLog::read(CardMemory& memory) {
  constexpr size_t kHead = offsetof(pto_a2a3_log, entry);
  if (memory.copy_out(ring_.get(), address_, kHead, nullptr) != PTO_OK) return read_;
  const bool has_news = ring_->written != read_ || ring_->dropped != dropped_;
  if (has_news && memory.copy_out(ring_.get(), address_, sizeof *ring_, nullptr) == PTO_OK) show();
  return read_;
}

void DeviceLog::salvage(CardSession& session) {
  const auto lock = session.lock();
  if (session.salvage(ring_.get(), address_, sizeof *ring_)) show();
}

// An entry whose number differs is incomplete, and a later call shows it.
void DeviceLog::show() {
  for (; read_ < ring_->written; ++read_) {
    pto_a2a3_log_entry& entry = ring_->entry[read_ % PTO_A2A3_LOG_ENTRIES];
    if (entry.number != read_ + 1) break;
    entry.text[sizeof entry.text - 1] = '\0';
    host::write_log(std::clamp<int32_t>(entry.level, PTO_LOG_ALWAYS, PTO_LOG_DEBUG), entry.text,
                    is_json_);
  }
  if (ring_->dropped == dropped_) return;
  const std::string lost = std::to_string(ring_->dropped - dropped_) +
                           " messages of the device are lost, because its log was full";
  host::write_log(PTO_LOG_WARN, lost.c_str(), is_json_);
  dropped_ = ring_->dropped;
}

}  // namespace pto::a2a3
