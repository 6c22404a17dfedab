// Ends this process as soon as its parent is gone, whatever it is doing.
#pragma once

namespace pto::hierarchy {

// Starts a thread that sleeps until the process behind `parent`, a pidfd, is gone, and then ends
// this one with SIGKILL. It also finds a parent that died before. Called once, first thing in a
// child; the descriptor stays open as long as the process lives. Throws std::system_error.
//
// A death signal (PR_SET_PDEATHSIG) would come when the thread that forked ends, not its process.
void watch_parent(int parent);

}  // namespace pto::hierarchy
