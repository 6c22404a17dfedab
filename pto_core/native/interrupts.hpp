// Defers signals while an operation must not be interrupted.
//
// Python runs signal handlers on the main thread, between any two byte codes, and their exceptions
// interrupt the code there. Between hold() and release() on that thread, a SIGINT, SIGTERM or
// SIGHUP that has a handler is only recorded. The last release() raises the signal again, so that
// its handler runs at the next byte code. Signals that end the process, or that are ignored, have
// their usual effect.
//
// Threads other than the main thread run no handlers; on them hold() returns false. Calls may nest.
// A forked process has the signal actions of the program, and no recorded signals.
#pragma once

namespace pto::core::interrupts {

void prepare();  // called once by each module that uses this, when the module is initialised

// Start to hold signals. Call with the GIL held. First the handlers of earlier signals run; if a
// handler raises, this throws nanobind::python_error and holds nothing. Returns whether release()
// must follow on this thread.
bool hold();
void release() noexcept;

// Return the first signal that was recorded since the outermost hold(); 0 if there is none.
int noted();
// Return a descriptor that is readable from the first recorded signal until the outermost
// release(); -1, with errno, if the process has no free descriptor.
int descriptor();

}  // namespace pto::core::interrupts
