#include "life/run_mailbox.hpp"

#include <chrono>
#include <memory>
#include <thread>

#include "error.hpp"

namespace pto::a2a3 {

namespace {

constexpr int64_t kAbandonNs = int64_t{2} * 1'000'000'000;
constexpr int kLooks = 50;
constexpr std::chrono::milliseconds kPause{1};
constexpr size_t kHead = offsetof(pto_a2a3_control, cause);

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

pto_status RunMailbox::open(uint64_t control, uint64_t progress, pto_error* error) {
  const std::lock_guard lock(mutex_);
  control_ = control;
  progress_ = progress;
  asked_ = {};
  run_ = 0;
  return card_.memory().copy_in(control_, &asked_, sizeof asked_, error);
}

void RunMailbox::begin(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  run_ = sequence;
  abandoned_at_ns_ = 0;
}

void RunMailbox::end() {
  const std::lock_guard lock(mutex_);
  run_ = 0;
}

// A failed copy has no consequence here: the wait for the run returns the failure.
void RunMailbox::abort(const pto_error* cause, bool abandons) {
  const std::lock_guard lock(mutex_);
  if (run_ == 0) return;
  CardMemory& memory = card_.memory();
  clear(asked_.cause);
  if (cause != nullptr) asked_.cause = *cause;
  memory.copy_in(control_ + kHead, &asked_.cause, sizeof asked_.cause, nullptr);
  asked_.abort = run_;
  asked_.abandon = abandons ? run_ : 0;
  memory.copy_in(control_, &asked_, kHead, nullptr);
  if (abandons && abandoned_at_ns_ == 0) abandoned_at_ns_ = now_ns();
}

bool RunMailbox::is_overdue() {
  const std::lock_guard lock(mutex_);
  return abandoned_at_ns_ != 0 && now_ns() - abandoned_at_ns_ >= kAbandonNs;
}

bool RunMailbox::explain(std::string& text) {
  const std::lock_guard lock(mutex_);
  if (run_ != 0) text = ask();
  return run_ != 0;
}

void RunMailbox::set_log_read(uint64_t count) {
  const std::lock_guard lock(mutex_);
  if (asked_.log_read == count) return;
  asked_.log_read = count;
  card_.memory().copy_in(control_, &asked_, kHead, nullptr);
}

// With the mutex.
std::string RunMailbox::ask() {
  const auto progress = std::make_unique<pto_a2a3_progress>();
  ++asked_.explain;
  card_.memory().copy_in(control_, &asked_, kHead, nullptr);
  for (int look = 0; look < kLooks && progress->explained != asked_.explain; ++look) {
    std::this_thread::sleep_for(kPause);
    if (card_.memory().copy_out(progress.get(), progress_, sizeof *progress, nullptr) != PTO_OK) {
      return "";
    }
  }
  const uint64_t answered = progress->explained;
  const uint64_t bytes = progress->explanation_bytes;
  if (answered == 0 || answered > asked_.explain || bytes > sizeof progress->explanation) return "";
  const std::string text(progress->explanation, bytes);
  if (answered == asked_.explain) return text;
  return "the device does not answer; an earlier state:\n" + text;
}

}  // namespace pto::a2a3
