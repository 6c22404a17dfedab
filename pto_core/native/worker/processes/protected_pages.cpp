#include "processes/protected_pages.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <memory>
#include <mutex>

namespace pto::worker {

// The ranges of all owners. A table does not change, except that an access marks its range.
//
// The handler reads the table that `current` refers to, without a lock. The last tables before it
// are kept, because a handler in another thread may still read them.
struct Protection {
  struct Entry {
    UsedRange range;
    ProtectedPages::Owner* owner;
    std::atomic<bool>* is_accessed;
  };
  struct Table {
    std::vector<Entry> entries;
    std::unique_ptr<std::atomic<bool>[]> accessed;
    std::vector<std::pair<uint64_t, uint64_t>> mappings;
  };

  static constexpr size_t kKept = 8;
  static constexpr int kSignals[] = {SIGSEGV, SIGTRAP};

  static inline std::atomic<const Table*> current{nullptr};
  static inline std::mutex mutex;  // protects the members below, and all changes of pages
  static inline std::vector<ProtectedPages*> owners;
  static inline std::vector<std::unique_ptr<Table>> tables;  // the last one is the current one
  static inline struct sigaction previous[std::size(kSignals)];

  static inline const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

  static uint64_t page_begin(uint64_t address) { return address & ~(page_bytes - 1); }
  static uint64_t page_end(uint64_t address) { return page_begin(address + page_bytes - 1); }

  static void open(uint64_t begin, uint64_t end) {
    begin = page_begin(begin);
    mprotect(reinterpret_cast<void*>(begin), page_end(end) - begin, PROT_READ | PROT_WRITE);
  }

  // Give the pages of a range the protection that the table requires.
  static void apply(const Table& table, uint64_t begin, uint64_t end) {
    end = page_end(end);
    for (uint64_t at = page_begin(begin), next = end; at < end; at = next, next = end) {
      int protection = PROT_READ | PROT_WRITE;
      for (const Entry& entry : table.entries) {
        const uint64_t first = page_begin(entry.range.begin);
        const uint64_t last = page_end(entry.range.end);
        if (last <= at || entry.is_accessed->load()) continue;
        next = std::min(next, first > at ? first : last);
        if (first <= at) protection &= entry.range.is_written ? PROT_NONE : PROT_READ;
      }
      mprotect(reinterpret_cast<void*>(at), next - at, protection);
    }
  }

  // Do the same in a handler. While another thread changes pages, only open them.
  static void apply_in_handler(uint64_t begin, uint64_t end) {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock) return open(begin, end);
    if (const Table* table = current.load()) apply(*table, begin, end);
  }

  // Create the table of all owners, and protect and open the pages whose ranges differ.
  static void update() {
    auto made = std::make_unique<Table>();
    for (const ProtectedPages* one : owners) {
      made->mappings.emplace_back(one->begin_, one->end_);
      for (const UsedRange& range : one->ranges_)
        made->entries.push_back({range, &one->owner_, nullptr});
    }
    made->accessed = std::make_unique<std::atomic<bool>[]>(made->entries.size());
    for (size_t i = 0; i < made->entries.size(); ++i)
      made->entries[i].is_accessed = &made->accessed[i];
    static const Table empty;
    const Table* before = current.load();
    const Table& old = before ? *before : empty;
    tables.push_back(std::move(made));
    const Table& now = *tables.back();
    current = &now;
    apply_difference(old, now, now);
    apply_difference(now, old, now);
    if (tables.size() > kKept) tables.erase(tables.begin());
  }

  // Apply `now` to the ranges of `some` that `others` lacks.
  static void apply_difference(const Table& some, const Table& others, const Table& now) {
    for (const Entry& one : some.entries) {
      const bool is_same =
          std::any_of(others.entries.begin(), others.entries.end(), [&](const Entry& other) {
            return other.range == one.range && other.is_accessed->load() == one.is_accessed->load();
          });
      if (!is_same) apply(now, one.range.begin, one.range.end);
    }
  }

  // Install the handlers, also above a handler that was installed since.
  static void install() {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &forget_in_fork); });
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action{};
      sigaction(kSignals[i], nullptr, &action);
      if (is_ours(action)) continue;
      previous[i] = action;
      action = {};
      action.sa_sigaction = kSignals[i] == SIGSEGV ? &handle_access : &end_step;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      sigaction(kSignals[i], &action, nullptr);
    }
  }

  static bool is_ours(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 &&
           (action.sa_sigaction == &handle_access || action.sa_sigaction == &end_step);
  }

  static void uninstall() {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      struct sigaction action{};
      sigaction(kSignals[i], nullptr, &action);
      if (is_ours(action)) sigaction(kSignals[i], &previous[i], nullptr);
    }
  }

  static void forget_in_fork() {
    const Table* table = current.exchange(nullptr);
    if (!table) return;
    for (const Entry& entry : table->entries) open(entry.range.begin, entry.range.end);
    uninstall();
  }

  // Let the earlier handler have the signal: it occurs again when this handler returns.
  static void pass_on(int number, const siginfo_t* information) {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      if (kSignals[i] != number) continue;
      sigaction(number, &previous[i], nullptr);
      previous[i] = {};
    }
    if (information->si_code <= 0 || number != SIGSEGV) raise(number);
  }

  static void handle_access(int number, siginfo_t* information, void* context) {
    const int error = errno;
    const auto address = reinterpret_cast<uint64_t>(information->si_addr);
    const Table* table = current.load();
    const auto has = [address](const auto& span) {
      return span.first <= address && address < span.second;
    };
    if (information->si_code <= 0 || !table ||
        std::none_of(table->mappings.begin(), table->mappings.end(), has)) {
      pass_on(number, information);
    } else if (!report(*table, address, context)) {
      open(address, address + 1);
      step(address, context);
    }
    errno = error;
  }

  // Report an access to a range, and open its pages. Return false for an access beside the ranges.
  static bool report(const Table& table, uint64_t address, void* context) {
    bool is_found = false;
    for (const Entry& entry : table.entries) {
      const UsedRange& range = entry.range;
      if (address < range.begin || range.end <= address) continue;
      const bool is_write = is_write_fault(context, table, address);
      if (!range.is_written && !is_write) continue;
      if (entry.is_accessed->exchange(true)) continue;  // other ranges still protect the page
      is_found = true;
      apply_in_handler(range.begin, range.end);
      entry.owner->report_access(range.number, is_write);
    }
    return is_found;
  }

#ifdef __x86_64__
  static constexpr size_t kMostPages = 16;
  static constexpr greg_t kTrap = 0x100;  // traps after the next instruction

  struct Step {
    uint64_t pages[kMostPages];
    size_t count;
  };
  static inline __thread Step stepped __attribute__((tls_model("initial-exec")));

  static bool is_write_fault(void* context, const Table&, uint64_t) {
    constexpr greg_t kWrites = 2;
    return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrites) != 0;
  }

  // Protect the page again after the instruction.
  static void step(uint64_t address, void* context) {
    if (stepped.count == kMostPages) return;
    stepped.pages[stepped.count++] = address;
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] |= kTrap;
  }

  static void end_step(int number, siginfo_t* information, void* context) {
    if (stepped.count == 0) return pass_on(number, information);
    const int error = errno;
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrap;
    while (stepped.count > 0) {
      const uint64_t address = stepped.pages[--stepped.count];
      apply_in_handler(address, address + 1);
    }
    errno = error;
  }
#else
  // A page that contains a written range permits neither reads nor writes, so the kind of the
  // access is not known there. It counts as a read.
  static bool is_write_fault(void*, const Table& table, uint64_t address) {
    return std::none_of(table.entries.begin(), table.entries.end(), [&](const Entry& entry) {
      return entry.range.is_written && page_begin(entry.range.begin) <= address &&
             address < page_end(entry.range.end);
    });
  }

  static void step(uint64_t, void*) {}

  static void end_step(int number, siginfo_t* information, void*) { pass_on(number, information); }
#endif
};

ProtectedPages::ProtectedPages(Owner& owner, uint64_t begin, uint64_t end)
    : owner_(owner), begin_(begin), end_(end) {
  const std::scoped_lock lock(Protection::mutex);
  Protection::owners.push_back(this);
}

ProtectedPages::~ProtectedPages() {
  const std::scoped_lock lock(Protection::mutex);
  std::erase(Protection::owners, this);
  Protection::update();
  if (!Protection::owners.empty()) return;
  Protection::current = nullptr;
  Protection::uninstall();
}

void ProtectedPages::set(std::vector<UsedRange> ranges) {
  const std::scoped_lock lock(Protection::mutex);
  ranges_ = std::move(ranges);
  Protection::install();
  Protection::update();
}

OwnAccess::OwnAccess(uint64_t begin, uint64_t bytes) : begin_(begin), end_(begin + bytes) {
  Protection::mutex.lock();
  if (Protection::current.load()) Protection::open(begin_, end_);
}

OwnAccess::~OwnAccess() {
  const Protection::Table* table = Protection::current.load();
  if (table) Protection::apply(*table, begin_, end_);
  Protection::mutex.unlock();
}

}  // namespace pto::worker
