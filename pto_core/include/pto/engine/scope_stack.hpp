// The open scopes, and up to which task of each ring they have been left.
//
// Scopes nest; the outermost has depth 0; a scope's own tasks go to ring min(depth, kRings - 1), so
// several open scopes share the last ring. In each ring tasks are numbered in the order of submits.
//
// Invariant: released(ring) is the number of the first task that belongs to an open scope, or of
// the ring's next task. It never falls.
//
// One thread.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"

namespace pto::engine {

struct Scope {
  static constexpr int64_t kNone = -1;

  const char* file;    // where it was opened; NULL is unknown
  int32_t line;        // 0 is unknown
  uint32_t ring;       // of its own tasks
  int64_t first_task;  // of its own, the number in the ring, or kNone
  uint64_t tasks;      // of its own
};

template <uint32_t kRings>
class ScopeStack {
 public:
  bool create(Memory& memory) { return scopes_.create(memory); }
  void destroy() { scopes_.destroy(); }

  // No scope is open.
  void restart() {
    open_ = 0;
    for (Oldest& oldest : oldest_) oldest = {};
  }

  static uint32_t ring_at(uint32_t depth) { return depth < kRings ? depth : kRings - 1; }

  uint32_t open() const { return open_; }
  // Of the innermost scope. One must be open, here and below.
  uint32_t depth() const { return open_ - 1; }
  const Scope& innermost() const { return *innermost_; }
  // `depth` < open().
  const Scope& at(uint32_t depth) const { return scopes_[depth]; }

  // False when memory is exhausted; nothing is opened then.
  bool begin(const char* file, int32_t line) {
    if (!scopes_.grow_to(open_)) return false;
    innermost_ = &scopes_[open_];
    *innermost_ = {file, line, ring_at(open_), Scope::kNone, 0};
    ++open_;
    return true;
  }

  // The next task of the innermost scope's ring, or the first of several, goes to that scope.
  void submitted(int64_t number, uint64_t tasks = 1) {
    Scope& scope = *innermost_;
    scope.tasks += tasks;
    if (scope.first_task != Scope::kNone) return;
    scope.first_task = number;
    Oldest& oldest = oldest_[scope.ring];
    if (oldest.task == Scope::kNone) oldest = {number, depth()};
  }

  // Gives the ring whose released number may have moved.
  uint32_t end() {
    const uint32_t ring = innermost_->ring;
    // Open scopes outside the ring's oldest one have no tasks, and those inside it have ended.
    if (oldest_[ring].task != Scope::kNone && oldest_[ring].depth == depth()) oldest_[ring] = {};
    --open_;
    innermost_ = open_ > 0 ? &scopes_[open_ - 1] : nullptr;
    return ring;
  }

  // `next`: the number of the ring's next task.
  int64_t released(uint32_t ring, int64_t next) const {
    return oldest_[ring].task == Scope::kNone ? next : oldest_[ring].task;
  }

 private:
  // The outermost open scope of a ring that has tasks of its own.
  struct Oldest {
    int64_t task = Scope::kNone;  // its first
    uint32_t depth = 0;
  };

  ChunkedArray<Scope, 8> scopes_;
  Scope* innermost_ = nullptr;  // NULL when none is open
  uint32_t open_ = 0;
  Oldest oldest_[kRings];
};

}  // namespace pto::engine
