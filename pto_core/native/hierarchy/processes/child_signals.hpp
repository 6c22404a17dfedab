// Signals over a fork.
#pragma once

#include <string>

namespace pto::hierarchy {

// Blocks every signal of this thread; gives what restore_signals() takes.
std::string block_signals();
void restore_signals(const std::string& saved);

// What a forked child makes of the handlers of its parent: signals that somebody handled get their
// default effect. Ignored ones stay ignored; those of a crash keep their handlers, which say what
// happened.
void reset_signals();

}  // namespace pto::hierarchy
