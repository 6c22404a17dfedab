// Signals across a fork.
#pragma once

#include <string>

namespace pto::hierarchy {

// Block every signal of this thread. Return the value for restore_signals().
std::string block_signals();
void restore_signals(const std::string& saved);

// Reset the signal handlers inherited by a forked child: handled signals get their default effect.
// Ignored ones stay ignored. Crash handlers stay, because they report the crash.
void reset_signals();

}  // namespace pto::hierarchy
