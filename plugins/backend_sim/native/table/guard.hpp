// Keeps exceptions from crossing the ABI.
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "error.hpp"

namespace pto::sim {

template <typename Call>
pto_status guarded(pto_error* error, Call call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(error, PTO_ERROR_MEMORY, "host memory exhausted; close other programs");
  } catch (const std::system_error& failure) {
    return fail(error, PTO_ERROR_CAPACITY,
                "the simulator cannot start a thread: %s; end other processes, or raise the limit "
                "of processes and threads: of this user (ulimit -u) or of a control group "
                "(pids.max)",
                failure.what());
  } catch (const std::exception& exception) {
    return fail(error, PTO_ERROR_INTERNAL, "the simulator failed: %s", exception.what());
  }
}

}  // namespace pto::sim
