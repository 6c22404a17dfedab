// Signals that wait while something must not be left half done.
//
// Python runs the handlers of signals on the main thread, between any two byte codes, and what they
// raise interrupts the code there. Between hold() and release() on that thread a SIGINT, SIGTERM or
// SIGHUP that has a handler is only noted. The last release() raises it again, so that its handler
// runs at the next byte code. Signals that end the process, or are ignored, do so as always.
//
// Other threads run no handlers: there hold() returns false. Uses nest. A forked process has the
// actions of the program, and none of its noted signals.
#pragma once

namespace pto::core::interrupts {

void prepare();  // once for each module that uses this, when the module is made

// With the GIL. Runs the handlers of earlier signals first; throws nanobind::python_error where one
// raises, and holds nothing then. Whether release() has to follow, on this thread.
bool hold();
void release() noexcept;

// Between the two: the first signal that was noted since the outermost hold(); 0: none.
int noted();
// Readable from the first noted signal on, until the outermost release(); -1, with errno, where the
// process has no descriptor left.
int descriptor();

}  // namespace pto::core::interrupts
