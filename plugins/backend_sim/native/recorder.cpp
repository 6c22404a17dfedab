#include "recorder.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <mutex>

namespace pto::sim {
namespace {

enum State : uint8_t { kUntouched = 0, kRead = 1, kWritten = 2 };

// The static storage model: with it, the handler can read the variable without allocating memory.
__thread PageGuard* guard_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;
// Where a kernel continues that causes a fault; NULL outside of call_until_fault().
__thread sigjmp_buf* escape_of_thread __attribute__((tls_model("initial-exec"))) = nullptr;
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE};
struct sigaction previous[std::size(kSignals)];

template <class Element>
Element* sparse_array(size_t count) {
  void* memory = mmap(nullptr, count * sizeof(Element), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Element*>(memory);
}

}  // namespace

struct FaultHandler {
  static void install() {
    static std::once_flag once;
    std::call_once(once, [] {
      struct sigaction action{};
      action.sa_sigaction = handle;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigemptyset(&action.sa_mask);
      for (size_t i = 0; i < std::size(kSignals); ++i) {
        sigaction(kSignals[i], &action, &previous[i]);
      }
    });
  }

  static void handle(int number, siginfo_t* information, void*) noexcept {
    const auto address = reinterpret_cast<uint64_t>(information->si_addr);
    const bool is_fault = information->si_code > 0;
    const bool is_access = is_fault && number == SIGSEGV;
    if (is_access && guard_of_thread != nullptr && guard_of_thread->permit(address)) return;
    if (is_fault && escape_of_thread != nullptr) siglongjmp(*escape_of_thread, number);
    // The earlier handler gets the fault, which occurs again when this handler returns.
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      if (kSignals[i] == number) sigaction(number, &previous[i], nullptr);
    }
    if (!is_fault) raise(number);
  }
};

int call_until_fault(void (*function)(int64_t*), int64_t* args) noexcept {
  FaultHandler::install();
  sigjmp_buf escape;
  const int number = sigsetjmp(escape, 0);
  if (number == 0) {
    escape_of_thread = &escape;
    function(args);
  }
  escape_of_thread = nullptr;
  return number;
}

PageGuard::PageGuard(uint64_t base, size_t bytes)
    : base_(base), bytes_(bytes), page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
  states_ = sparse_array<uint8_t>(bytes_ / page_bytes_ + 1);
  touched_ = sparse_array<uint32_t>(bytes_ / page_bytes_ + 1);
}

PageGuard::~PageGuard() {
  const size_t pages = bytes_ / page_bytes_ + 1;
  if (states_ != nullptr) munmap(states_, pages * sizeof *states_);
  if (touched_ != nullptr) munmap(touched_, pages * sizeof *touched_);
}

bool PageGuard::begin() {
  if (states_ == nullptr || touched_ == nullptr) return false;
  FaultHandler::install();
  count_ = 0;
  guard_of_thread = this;
  if (mprotect(reinterpret_cast<void*>(base_), bytes_, PROT_NONE) == 0) return true;
  guard_of_thread = nullptr;
  return false;
}

bool PageGuard::permit(uint64_t address) noexcept {
  if (address - base_ >= bytes_) return false;
  const size_t page = (address - base_) / page_bytes_;
  if (states_[page] == kWritten) return false;
  if (states_[page] == kUntouched) touched_[count_++] = static_cast<uint32_t>(page);
  const bool is_first = states_[page] == kUntouched;
  states_[page] = is_first ? kRead : kWritten;
  void* const memory = reinterpret_cast<void*>(base_ + page * page_bytes_);
  return mprotect(memory, page_bytes_, is_first ? PROT_READ : PROT_READ | PROT_WRITE) == 0;
}

void PageGuard::end(int64_t task, uint32_t core, std::vector<pto_measured_range>& ranges) {
  guard_of_thread = nullptr;
  mprotect(reinterpret_cast<void*>(base_), bytes_, PROT_READ | PROT_WRITE);
  std::sort(touched_, touched_ + count_);
  for (size_t i = 0; i < count_; ++i) {
    const uint64_t begin = base_ + touched_[i] * page_bytes_;
    const uint32_t kind = states_[touched_[i]] == kWritten ? PTO_MEASURED_WRITE : PTO_MEASURED_READ;
    ranges.push_back({task, begin, begin + page_bytes_, kind, core});
    states_[touched_[i]] = kUntouched;
  }
}

namespace {

thread_local Recorder* current = nullptr;

// Joins ranges that touch.
class Joiner {
 public:
  Joiner(std::vector<pto_measured_range>& ranges, int64_t task, uint32_t kind, uint32_t core)
      : ranges_(ranges), range_{task, 0, 0, kind, core} {}
  ~Joiner() { close(); }
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // The set bits of `word` are bytes from `address` on.
  void add(uint64_t address, uint64_t word) {
    while (word != 0) {
      const auto skipped = static_cast<uint64_t>(std::countr_zero(word));
      const auto length = static_cast<uint64_t>(std::countr_one(word >> skipped));
      add_range(address + skipped, address + skipped + length);
      if (skipped + length == 64) return;
      word &= ~uint64_t{0} << (skipped + length);
    }
  }

 private:
  void add_range(uint64_t begin, uint64_t end) {
    if (begin != range_.end) {
      close();
      range_.begin = begin;
    }
    range_.end = end;
  }
  void close() {
    if (range_.end != range_.begin) ranges_.push_back(range_);
  }

  std::vector<pto_measured_range>& ranges_;
  pto_measured_range range_;
};

}  // namespace

void set_recorder(Recorder* recorder) noexcept {
  current = recorder;
}

void record_access(uint64_t address, uint64_t bytes, int32_t is_write) {
  if (current != nullptr) current->add(address, bytes, is_write != 0);
}

void Recorder::begin(uint64_t base, uint64_t bytes) {
  base_ = base;
  bytes_ = bytes;
  used_ = 0;
  last_ = {};
  by_number_.clear();
  recent_.fill(nullptr);
}

void Recorder::add(uint64_t address, uint64_t bytes, bool is_write) {
  last_ = {address, bytes, is_write};
  uint64_t first = address - base_;
  if (first >= bytes_ || bytes == 0) return;
  const uint64_t end = std::min(first + bytes, bytes_);
  while (first < end) {
    const uint64_t number = first / kPageBytes;
    const uint64_t begin_of_page = number * kPageBytes;
    const uint64_t stop = std::min(end, begin_of_page + kPageBytes);
    add_in_page(page_at(number), first - begin_of_page, stop - begin_of_page, is_write);
    first = stop;
  }
}

void Recorder::add_in_page(Page& page, uint64_t first, uint64_t end, bool is_write) {
  for (uint64_t word = first / 64; word * 64 < end; ++word) {
    const uint64_t low = std::max(first, word * 64) - word * 64;
    const uint64_t high = std::min(end, word * 64 + 64) - word * 64;
    const uint64_t below = high == 64 ? ~uint64_t{0} : (uint64_t{1} << high) - 1;
    const uint64_t mask = below & ~uint64_t{0} << low;
    if (is_write) {
      page.written[word] |= mask;
    } else {
      page.read[word] |= mask & ~page.written[word];
    }
  }
}

Recorder::Page& Recorder::page_at(uint64_t number) {
  Page*& recent = recent_[number % recent_.size()];
  if (recent != nullptr && recent->number == number) return *recent;
  auto [found, is_new] = by_number_.try_emplace(number, nullptr);
  if (is_new) {
    if (used_ == pages_.size()) pages_.emplace_back();
    found->second = &pages_[used_++];
    *found->second = Page{number, {}, {}};
  }
  return *(recent = found->second);
}

void Recorder::end(int64_t task, uint32_t core, std::vector<pto_measured_range>& ranges) {
  std::vector<const Page*> pages;
  for (size_t i = 0; i < used_; ++i) pages.push_back(&pages_[i]);
  std::sort(pages.begin(), pages.end(),
            [](const Page* one, const Page* other) { return one->number < other->number; });
  for (const uint32_t kind : {PTO_MEASURED_READ, PTO_MEASURED_WRITE}) {
    Joiner joiner(ranges, task, kind, core);
    for (const Page* page : pages) {
      const auto& words = kind == PTO_MEASURED_READ ? page->read : page->written;
      const uint64_t address = base_ + page->number * kPageBytes;
      for (uint64_t word = 0; word < kWords; ++word) joiner.add(address + word * 64, words[word]);
    }
  }
}

}  // namespace pto::sim
