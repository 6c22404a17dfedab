// The signal handling of a process that forks.
#pragma once

#include <string>

namespace pto::hierarchy {

// Block every signal of this thread. Return the value for restore_signals().
std::string block_signals();
void restore_signals(const std::string& saved);

// Reset the signal handlers that a forked child has inherited. Signals with a handler get their
// default action, and ignored signals stay ignored. Crash handlers are kept, because they report
// crashes.
void reset_signals();

}  // namespace pto::hierarchy
