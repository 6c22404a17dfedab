#include "life/session.hpp"

#include "error.hpp"

namespace pto::a2a3 {

namespace {

// Returns whether a failure is the consequence of an earlier one.
bool is_cascade(const pto_error& failure) {
  const cann::CodeEntry* entry = cann::find_code(static_cast<cann::Code>(failure.value));
  return entry != nullptr && entry->cause == cann::Cause::kCascade;
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

pto_status Session::reset(pto_error* error) {
  const bool is_forced = is_poisoned();
  context_ = nullptr;
  first_ = {};
  return call(error, is_forced ? functions().aclrtResetDeviceForce : functions().aclrtResetDevice,
              device_);
}

pto_status Session::enter(pto_error* error) {
  if (is_poisoned()) {
    return fail(error, PTO_ERROR_LOST,
                "device %d is unusable because of an earlier failure; close it and open it again. "
                "The failure: %.700s",
                device_, first_.message);
  }
  if (!is_selected()) return fail(error, PTO_ERROR_USAGE, "the device is closed; open it first");
  const pto_status status = driver_.check_process(error);
  return status == PTO_OK ? call(error, functions().aclrtSetCurrentContext, context_) : status;
}

pto_status Session::report(const pto_error& failure, pto_error* error) {
  const bool has_cause = is_selected() && !is_poisoned() && is_cascade(failure);
  const pto_error found = has_cause ? find_cause(failure) : failure;
  if (cann::is_poison(static_cast<cann::Code>(failure.value)) && !is_poisoned()) first_ = found;
  if (error != nullptr) *error = found;
  return found.status;
}

pto_status Session::lose(const pto_error& failure, pto_error* error) {
  if (!is_poisoned()) first_ = failure;
  if (error != nullptr) *error = first_;
  return first_.status;
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
