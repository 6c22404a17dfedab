// While an object of this class lives, a policy of the program runs on this thread, which may hold
// a driver role.
#pragma once

namespace pto::hierarchy {

class Deciding {
 public:
  Deciding() { depth_ += 1; }
  ~Deciding() { depth_ -= 1; }
  Deciding(const Deciding&) = delete;
  Deciding& operator=(const Deciding&) = delete;

  // Throw Refusal on such a thread. Call this before a wait for another thread.
  static void refuse();

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace pto::hierarchy
