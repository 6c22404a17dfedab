#include "user_call.hpp"

#include <Python.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>

#include "gil.hpp"

namespace pto::core {
namespace {

constexpr int kPatienceMs = 1000;

void close_if_open(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

// Wait until a byte was written to a pipe (return true), or until no process can write.
bool has_byte(int read_end) {
  const ReleasedGil released;
  pollfd waited{read_end, POLLIN, 0};
  while (poll(&waited, 1, kPatienceMs) < 0 && errno == EINTR) {
  }
  char byte = 0;
  return (waited.revents & POLLIN) != 0 && read(read_end, &byte, 1) == 1;
}

}  // namespace

thread_local UserCall* UserCall::current_ = nullptr;
const int UserCall::registered_ = UserCall::register_handlers();

int UserCall::register_handlers() {
  return pthread_atfork(&before_fork, nullptr, &in_copy);
}

void UserCall::before_fork() {
  int ends[2];
  if (!current_ || current_->read_end_ >= 0 || pipe2(ends, O_CLOEXEC) != 0) return;
  current_->read_end_ = ends[0];
  current_->write_end_ = ends[1];
}

void UserCall::in_copy() {
  if (current_) current_->is_copy_ = true;
}

UserCall::~UserCall() {
  current_ = outer_;
  close_if_open(read_end_);
  close_if_open(write_end_);
}

bool UserCall::has_returned_twice() {
  if (is_copy_) {
    const char byte = 1;
    if (write_end_ >= 0 && write(write_end_, &byte, 1) != 1) _exit(1);
    _exit(1);
  }
  if (read_end_ < 0) return false;
  close_if_open(write_end_);
  return has_byte(read_end_);
}

void UserCall::forget_inherited() {
  for (; current_; current_ = current_->outer_) {
    close_if_open(current_->read_end_);
    close_if_open(current_->write_end_);
  }
}

}  // namespace pto::core
