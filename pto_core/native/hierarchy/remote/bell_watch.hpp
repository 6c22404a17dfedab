// A descriptor that becomes readable when a doorbell rings, so that one call can wait for the
// doorbell and for messages of other hosts.
//
// A helper thread sleeps on the bell and signals the descriptor. A bell wakes sleepers only if one
// has announced itself, so the owner calls arm() before it waits, then checks for work once more.
// Without arm(), rings cost nothing, and the descriptor may not report them.
//
// Memory: the bell must outlive the watch. The watch does not survive a fork.
#pragma once

#include <atomic>
#include <thread>

#include "pto/engine/bell.hpp"

namespace pto::hierarchy {

class BellWatch {
 public:
  // Throws std::system_error.
  explicit BellWatch(pto_bell* bell);
  ~BellWatch() { close(); }
  BellWatch(const BellWatch&) = delete;
  BellWatch& operator=(const BellWatch&) = delete;

  int descriptor() const { return descriptor_; }
  // Make the descriptor unreadable, and let the next ring make it readable.
  void arm();
  // End the thread and close the descriptor. A second call does nothing.
  void close();

 private:
  void run();

  pto_bell* bell_;
  int descriptor_;
  std::atomic<bool> is_closing_ = false;
  std::thread thread_;
};

}  // namespace pto::hierarchy
