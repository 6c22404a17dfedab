// Guards a call of a user's function against a fork inside it.
//
// After fork(), the function continues in two processes. The copy has one thread and no part in our
// protocols, so it must not return into our code. A guard ends the copy when the function returns
// there, and tells the original that this has happened. A copy that exits, or executes another
// program, as those of subprocess and multiprocessing do, is not affected.
#pragma once

namespace pto::core {

class UserCall {
 public:
  UserCall() : outer_(current_) { current_ = this; }
  ~UserCall();
  UserCall(const UserCall&) = delete;
  UserCall& operator=(const UserCall&) = delete;

  // Call this once with the GIL held, when the function has returned or raised. In a copy, end the
  // process. In the original, return whether a copy has returned; if it still runs, wait up to 1 s.
  bool has_returned_twice();

  // Forget the guards of the parent, in a forked process that cannot return into the parent's code.
  static void forget_inherited();

 private:
  static void before_fork();
  static void in_copy();
  static int register_handlers();
  static const int registered_;
  static thread_local UserCall* current_;  // the innermost guard of this thread

  UserCall* outer_;
  bool is_copy_ = false;
  // A pipe, created at the first fork. The copies inherit the write end, and write to it if they
  // return. It is closed in all processes that have ended or execute another program.
  int read_end_ = -1;
  int write_end_ = -1;
};

}  // namespace pto::core
