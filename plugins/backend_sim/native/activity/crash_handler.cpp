#include "activity/crash_handler.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <mutex>

#include "kernel.hpp"
#include "pto/abi/runtime.h"

namespace pto::sim {
namespace {

constexpr size_t kStackBytes = 64 * 1024;

struct FatalSignal {
  int number;
  const char* name;
  struct sigaction previous;
};

FatalSignal fatal_signals[] = {{SIGSEGV, "SIGSEGV", {}},
                               {SIGBUS, "SIGBUS", {}},
                               {SIGFPE, "SIGFPE", {}},
                               {SIGILL, "SIGILL", {}},
                               {SIGABRT, "SIGABRT", {}}};

// Static storage for the thread, so that the handler's access cannot allocate.
__thread const CrashNote* note_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;

// Text built without the C library's formatting, which a signal handler must not call.
class Line {
 public:
  void add(const char* text) noexcept {
    while (*text != 0 && length_ < sizeof text_) text_[length_++] = *text++;
  }

  void add(uint64_t number) noexcept {
    char digits[24];
    size_t first = sizeof digits - 1;
    digits[first] = 0;
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    add(digits + first);
  }

  void add(int64_t number) noexcept {
    if (number < 0) add("-");
    add(number < 0 ? ~static_cast<uint64_t>(number) + 1 : static_cast<uint64_t>(number));
  }

  void print() noexcept {
    if (length_ == sizeof text_) --length_;
    text_[length_++] = '\n';
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_, length_);
  }

 private:
  char text_[512];
  size_t length_ = 0;
};

void add_core(Line& line, uint32_t core, uint32_t blocks) noexcept {
  line.add(core < blocks ? "AIC " : "AIV ");
  line.add(static_cast<uint64_t>(core < blocks ? core : core - blocks));
}

void add_task(Line& line, uint64_t task, uint32_t capabilities) noexcept {
  const bool has_ring = (capabilities & PTO_RUNTIME_RING_IDS) != 0;
  line.add("task ");
  line.add(has_ring ? task / PTO_TASK_RINGS : task);
  if (!has_ring) return;
  line.add(" of ring ");
  line.add(task % PTO_TASK_RINGS);
}

bool is_in_kernel(const pto_activity_slot& slot) noexcept {
  return (slot.sequence & 1) != 0;
}

void print_kernel_crash(const CrashNote& note, const char* signal_name) noexcept {
  const auto* kernel = reinterpret_cast<const Kernel*>(note.slot->kernel);
  Line line;
  line.add("pto: kernel ");
  line.add(kernel->name.c_str());
  line.add(" (func_id ");
  line.add(static_cast<int64_t>(note.slot->func_id));
  line.add(") crashed with ");
  line.add(signal_name);
  line.add(": ");
  add_task(line, note.slot->task, note.page->capabilities);
  line.add(" on core ");
  add_core(line, static_cast<uint32_t>(note.slot->core), *note.blocks);
  line.add(", device ");
  line.add(static_cast<int64_t>(note.device));
  line.print();
}

void print_orchestration_crash(const CrashNote& note, const char* signal_name) noexcept {
  Line line;
  line.add("pto: the orchestration crashed with ");
  line.add(signal_name);
  line.add(", device ");
  line.add(static_cast<int64_t>(note.device));
  line.print();
}

// Threads may crash together. The first reports; the others must not end the process before it has.
std::atomic<int64_t> reporter{0};
std::atomic<bool> reported{false};

// Bounded, for a reporter that is stopped or crashes again inside its report.
void wait_for_report() noexcept {
  constexpr int kMostWaits = 1000;
  for (int i = 0; i < kMostWaits && !reported.load(std::memory_order_acquire); ++i) {
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
}

void report(const CrashNote& note, const FatalSignal& fatal) noexcept {
  const int64_t self = gettid();
  int64_t nobody = 0;
  if (!reporter.compare_exchange_strong(nobody, self)) {
    if (nobody != self) wait_for_report();
    return;
  }
  std::atomic_ref(note.slot->signal).store(fatal.number, std::memory_order_relaxed);
  if (!note.is_silent) {
    (is_in_kernel(*note.slot) ? print_kernel_crash : print_orchestration_crash)(note, fatal.name);
  }
  reported.store(true, std::memory_order_release);
}

void handle(int number, siginfo_t* information, void*) noexcept {
  for (FatalSignal& fatal : fatal_signals) {
    if (fatal.number != number) continue;
    const CrashNote* note = note_of_thread;
    const bool is_users =
        note != nullptr && (is_in_kernel(*note->slot) || note->slot->orchestrates != 0);
    if (is_users) report(*note, fatal);
    sigaction(number, &fatal.previous, nullptr);
  }
  // A fault comes again when the handler returns, with its true context; a signal that was sent
  // does not.
  if (information->si_code <= 0) raise(number);
}

}  // namespace

void install_crash_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (FatalSignal& fatal : fatal_signals) {
      struct sigaction action{};
      action.sa_sigaction = handle;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      sigaction(fatal.number, &action, &fatal.previous);
    }
  });
}

void set_crash_note(const CrashNote* note) noexcept {
  note_of_thread = note;
}

const CrashNote* crash_note() noexcept {
  return note_of_thread;
}

AlternateStack::AlternateStack() {
  stack_t current{};
  if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return;
  void* memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = memory;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kStackBytes;
  sigaltstack(&stack, nullptr);
}

AlternateStack::~AlternateStack() {
  if (memory_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
  munmap(memory_, kStackBytes);
}

}  // namespace pto::sim
