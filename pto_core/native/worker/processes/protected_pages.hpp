// Memory that tasks use, and that the program must not access meanwhile.
//
// The pages of such memory are protected in this process only; children have their own mappings.
// An access is a fault, and the handler of SIGSEGV reports it. Then it permits the access, because
// code such as NumPy's cannot continue otherwise, and any further access to this memory.
//
// A page may also contain other memory. For an access to that, the handler permits one instruction;
// on processors other than x86-64, all accesses to the page until the next change of the ranges.
// Faults at all other addresses go to the handler that was installed before.
//
// A forked process has no protected memory.
#pragma once

#include <cstdint>
#include <vector>

namespace pto::worker {

struct UsedRange {
  uint64_t begin;
  uint64_t end;
  bool is_written;  // whether reads are reported too
  int64_t number;   // for the report

  bool operator==(const UsedRange&) const = default;
};

// The protected ranges of one owner, in a mapping that exists longer than this object. Only one
// thread at a time may use an object; several objects may protect the same memory.
class ProtectedPages {
 public:
  class Owner {
   public:
    // Called in the thread that has made the access, inside a signal handler.
    virtual void report_access(int64_t number, bool is_write) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  ProtectedPages(Owner& owner, uint64_t begin, uint64_t end);
  ~ProtectedPages();
  ProtectedPages(const ProtectedPages&) = delete;
  ProtectedPages& operator=(const ProtectedPages&) = delete;

  // Replace the ranges. Throws std::bad_alloc.
  void set(std::vector<UsedRange> ranges);

 private:
  friend struct Protection;

  Owner& owner_;
  const uint64_t begin_;
  const uint64_t end_;
  std::vector<UsedRange> ranges_;
};

// Permits this framework to access a range while the object lives.
class OwnAccess {
 public:
  OwnAccess(uint64_t begin, uint64_t bytes);
  ~OwnAccess();
  OwnAccess(const OwnAccess&) = delete;
  OwnAccess& operator=(const OwnAccess&) = delete;

 private:
  const uint64_t begin_;
  const uint64_t end_;
};

}  // namespace pto::worker
