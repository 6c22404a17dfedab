#include "activity.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>

#include "error.hpp"
#include "kernel_hooks.hpp"
#include "loader.hpp"
#include "pto/engine/task_name.hpp"

namespace pto::sim {

namespace {

int create_file() {
  const int file = memfd_create("pto-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, sizeof(pto_activity_page)) == 0) return file;
  close(file);
  return -1;
}

}  // namespace

ActivityPage::~ActivityPage() {
  if (page_ != nullptr) munmap(page_, sizeof *page_);
  if (file_ >= 0) close(file_);
}

pto_status ActivityPage::open(int file, int32_t device, uint32_t slots, pto_error* error) {
  is_shared_ = file >= 0;
  if (file < 0) file = file_ = create_file();
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, sizeof *page_, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) {
    return fail(error, PTO_ERROR_USAGE,
                "cannot map the activity page from descriptor %d (%s); pass a file of at least "
                "%zu bytes that is open for reading and writing",
                file, std::strerror(errno), sizeof *page_);
  }
  page_ = static_cast<pto_activity_page*>(memory);
  note(page_->version, PTO_ACTIVITY_VERSION);
  note(page_->slots, slots);
  note(page_->device, device);
  note(page_->process, static_cast<int32_t>(getpid()));
  // an earlier device of the same parent may have used the page
  for (pto_activity_kernel& entry : page_->kernel) note(entry.kernel, uint64_t{0});
  note(page_->magic, PTO_ACTIVITY_MAGIC);
  return PTO_OK;
}

void ActivityPage::set_runtime(const char* variant, uint32_t capabilities) const noexcept {
  note(page_->capabilities, capabilities);
  std::strncpy(page_->variant, variant, sizeof page_->variant - 1);
}

void ActivityPage::set_blocks(uint32_t blocks) const noexcept {
  note(page_->blocks, blocks);
}

void ActivityPage::add_kernel(uint64_t kernel, const char* name) const noexcept {
  for (pto_activity_kernel& entry : page_->kernel) {
    if (entry.kernel != 0) continue;
    std::strncpy(entry.name, name, sizeof entry.name - 1);
    std::atomic_ref(entry.kernel).store(kernel, std::memory_order_release);
    return;
  }
}

void ActivityPage::remove_kernel(uint64_t kernel) const noexcept {
  for (pto_activity_kernel& entry : page_->kernel)
    if (entry.kernel == kernel) note(entry.kernel, uint64_t{0});
}

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

// The static storage model: with it, the handler can read the variable without allocating memory.
__thread const CrashNote* note_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;

// Write a line to standard error. A signal handler must not use the C library's formatting
// functions.
template <class... Parts>
void print_line(Parts... parts) noexcept {
  char line[512];
  engine::Text text(line, sizeof line - 1);
  text.add(parts...);
  line[text.length()] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, text.length() + 1);
}

bool is_in_kernel(const pto_activity_slot& slot) noexcept {
  return (slot.sequence & 1) != 0;
}

void print_kernel_crash(const CrashNote& note, const char* signal_name) noexcept {
  const pto_activity_slot& slot = *note.slot;
  const auto* kernel = reinterpret_cast<const Kernel*>(slot.kernel);
  const auto core = static_cast<uint32_t>(slot.core);
  const bool is_cube = core < *note.blocks;
  print_line("pto: kernel ", kernel->name.c_str(), " (func_id ", slot.func_id, ") crashed with ",
             signal_name, ": ",
             engine::TaskName{static_cast<int64_t>(slot.task), note.page->capabilities},
             " on core ", is_cube ? "AIC " : "AIV ", is_cube ? core : core - *note.blocks,
             ", device ", note.device);
}

void print_orchestration_crash(const CrashNote& note, const char* signal_name) noexcept {
  print_line("pto: the orchestration crashed with ", signal_name, ", device ", note.device);
}

// Several threads may crash together. The first thread writes the report. The others wait, because
// the process must not end before the report is complete.
std::atomic<int64_t> reporter{0};
std::atomic<bool> reported{false};

// The wait has a limit, because the reporting thread may be stopped or may crash again inside its
// report.
void wait_for_report() noexcept {
  constexpr int kMostWaits = 1000;
  for (int i = 0; i < kMostWaits && !reported.load(std::memory_order_acquire); ++i) {
    const timespec millisecond{0, 1'000'000};
    nanosleep(&millisecond, nullptr);
  }
}

void report(const CrashNote& note, const FatalSignal& fatal) noexcept {
  const int64_t self = gettid();
  int64_t owner = 0;
  if (!reporter.compare_exchange_strong(owner, self)) {
    if (owner != self) wait_for_report();
    return;
  }
  std::atomic_ref(note.slot->signal).store(fatal.number, std::memory_order_relaxed);
  if (!note.is_silent) {
    (is_in_kernel(*note.slot) ? print_kernel_crash : print_orchestration_crash)(note, fatal.name);
  }
  reported.store(true, std::memory_order_release);
}

// The value of the signal that send_leave() sends.
char leave_mark;

void handle(int number, siginfo_t* information, void*) noexcept {
  const bool is_queued = information->si_code == SI_QUEUE;
  if (is_queued && information->si_value.sival_ptr == &leave_mark) return leave_kernel();
  for (FatalSignal& fatal : fatal_signals) {
    if (fatal.number != number) continue;
    const CrashNote* note = note_of_thread;
    const bool is_users =
        note != nullptr && (is_in_kernel(*note->slot) || note->slot->orchestrates != 0);
    if (is_users) report(*note, fatal);
    sigaction(number, &fatal.previous, nullptr);
  }
  // A fault occurs again when the handler returns. A signal that a process sent does not, so it is
  // sent again here.
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

// SIGABRT is not blocked on the threads of kernels.
void send_leave(pthread_t thread) noexcept {
  sigval value{};
  value.sival_ptr = &leave_mark;
  pthread_sigqueue(thread, SIGABRT, value);
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
