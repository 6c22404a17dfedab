#include "life/session.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "error.hpp"

namespace pto::a2a3 {

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

pto_status Session::select(int32_t device, pto_error* error) {
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
pto_status Session::reset(pto_error* error) {
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

pto_status Session::enter(pto_error* error) {
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

pto_status Session::report(const pto_error& failure, pto_error* error) {
  const bool has_cause = is_selected() && !is_poisoned() && is_cascade(failure);
  const pto_error found = has_cause ? find_cause(failure) : failure;
  if (cann::is_poison(failure.vendor_code) && !is_poisoned()) first_ = found;
  if (error != nullptr) *error = found;
  return found.status;
}

pto_status Session::lose(const pto_error& failure, pto_error* error) {
  if (!is_poisoned()) first_ = failure;
  if (error != nullptr) *error = first_;
  return first_.status;
}

// The driver may keep the thread that calls it for ever, so the call has a thread of its own.
bool Session::salvage(void* host, uint64_t address, size_t bytes) const {
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

pto_error Session::find_cause(const pto_error& failure) const {
  for (const cann::Handle stream : streams_) {
    if (stream == nullptr) continue;
    pto_error found = {};
    int32_t state = 0;
    driver_.call(&found, functions().aclrtStreamQuery, stream, &state);
    if (found.status != PTO_OK && !is_cascade(found)) return found;
  }
  return failure;
}

}  // namespace pto::a2a3
