// A descriptor that becomes readable when a doorbell rings, so that one call can wait for the
// doorbell and for messages of other hosts.
//
// The processes that ring inherit the descriptor: open it before they start. Rings cost nothing,
// and the descriptor does not report them, unless the owner has called arm() before. So the owner
// calls arm(), checks for work once more, and waits.
//
// Memory: the bell must outlive the watch, and has one watch at a time.
#pragma once

#include "pto/engine/bell.hpp"

namespace pto::worker {

// Open the descriptor of a bell and return it; the caller closes it. Throws std::system_error.
int open_bell_descriptor(pto_bell* bell);

class BellWatch {
 public:
  // Use the descriptor of the bell, which this process opened or inherited.
  explicit BellWatch(pto_bell* bell) : bell_(bell) {}

  int descriptor() const { return static_cast<int>(bell_->descriptor) - 1; }
  // Make the descriptor unreadable, and let the next ring make it readable.
  void arm();

 private:
  pto_bell* bell_;
};

}  // namespace pto::worker
