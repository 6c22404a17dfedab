// Ends this process as soon as its parent has exited, whatever this process is doing.
#pragma once

namespace pto::hierarchy {

// Start a thread that sleeps until the process of the pidfd `parent` has ended, and then ends this
// process with SIGKILL. It also detects a parent that died earlier. Call this once, at the start of
// a child. The descriptor stays open as long as the process lives. Throws std::system_error.
//
// PR_SET_PDEATHSIG is not suitable: it sends its signal when the thread that forked ends, not when
// its process ends.
void watch_parent(int parent);

}  // namespace pto::hierarchy
