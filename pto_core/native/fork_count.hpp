// Return the number of forks between the process that loaded the module and this process. Two
// results differ if and only if a fork lies between the two calls. This is cheaper than getpid(),
// which is a system call.
#pragma once

#include <cstdint>

namespace pto::core {

uint64_t fork_count();

}  // namespace pto::core
