// Return the number of forks between this process and the one that loaded the module: two values
// differ exactly if a fork lies between them. Cheaper than getpid(), which is a system call.
#pragma once

#include <cstdint>

namespace pto::core {

uint64_t fork_count();

}  // namespace pto::core
