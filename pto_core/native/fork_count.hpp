// Return the number of forks between this process and the process that loaded the module. Two
// values differ if and only if a fork lies between them. It is cheaper than getpid(), which is a
// system call.
#pragma once

#include <cstdint>

namespace pto::core {

uint64_t fork_count();

}  // namespace pto::core
