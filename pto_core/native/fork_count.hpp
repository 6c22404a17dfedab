// How many forks lie between this process and the one that loaded the module: two readings differ
// exactly when a fork lies between them. Cheaper than getpid(), which is a system call.
#pragma once

#include <cstdint>

namespace pto::core {

uint64_t fork_count();

}  // namespace pto::core
