// A refused call: an error record with a message, thrown by the function that detects the error.
// guarded() wraps each table call that can fail, so no exception leaves the tables.
#pragma once

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "pto/abi/status.h"

namespace pto_backend_template {

struct Refusal {
  pto_error error;
};

inline pto_error error_record(pto_status status, const std::string& message) {
  pto_error error{};
  error.status = status;
  error.task = error.other_task = -1;
  error.func_id = error.core = error.line = -1;
  std::snprintf(error.message, sizeof error.message, "%s", message.c_str());
  return error;
}

[[noreturn]] inline void refuse(pto_status status, const std::string& message) {
  throw Refusal{error_record(status, message)};
}

inline pto_status write_error(pto_error* error, const pto_error& record) noexcept {
  if (error != nullptr) *error = record;
  return record.status;
}

// Returns PTO_OK if `call` returns; otherwise returns the status of its exception, and copies the
// record to `error` unless `error` is null.
pto_status guarded(pto_error* error, auto call) noexcept {
  try {
    call();
    return PTO_OK;
  } catch (const Refusal& refusal) {
    return write_error(error, refusal.error);
  } catch (const std::bad_alloc&) {
    return write_error(
        error, error_record(PTO_ERROR_MEMORY, "host memory is exhausted; close other programs"));
  } catch (const std::exception& exception) {
    return write_error(error, error_record(PTO_ERROR_INTERNAL, exception.what()));
  }
}

}  // namespace pto_backend_template
