// Return the number of forks between the process that loaded the module and this process. So a
// changed result means that this process was forked since the last call. This is cheaper than
// getpid(), which is a system call.
#pragma once

#include <cstdint>

namespace pto::core {

uint64_t fork_count();

}  // namespace pto::core
