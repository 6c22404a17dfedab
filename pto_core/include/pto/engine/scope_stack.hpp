// The open scopes and, for each ring, the first task that an open scope keeps alive.
//
// Scopes nest. The outermost scope has depth 0. A scope's own tasks go to ring min(depth, kRings -
// 1), so several open scopes can share the last ring. Each ring numbers its tasks in the order of
// submits.
//
// Invariant: released(ring) is the number of the ring's first task that belongs to an open scope
// or, if there is none, of the ring's next task. It never decreases.
//
// Only one thread may use this object.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"

namespace pto::engine {

struct Scope {
  static constexpr int64_t kNone = -1;

  const char* file;    // file that opened the scope; NULL if unknown
  int32_t line;        // line in this file; 0 if unknown
  uint32_t ring;       // ring of its own tasks
  int64_t first_task;  // number of its first own task in the ring, or kNone
  uint64_t tasks;      // number of its own tasks
};

template <uint32_t kRings>
class ScopeStack {
 public:
  bool create(Memory& memory) { return scopes_.create(memory); }
  void destroy() { scopes_.destroy(); }

  // Start with no open scope.
  void restart() {
    open_ = 0;
    for (Oldest& oldest : oldest_) oldest = {};
  }

  static uint32_t ring_at(uint32_t depth) { return depth < kRings ? depth : kRings - 1; }

  uint32_t open() const { return open_; }
  // Return the depth of the innermost scope. depth() and innermost() require an open scope.
  uint32_t depth() const { return open_ - 1; }
  const Scope& innermost() const { return *innermost_; }
  // `depth` is less than open().
  const Scope& at(uint32_t depth) const { return scopes_[depth]; }

  // Open a scope. Return false, and open nothing, if memory is exhausted.
  bool begin(const char* file, int32_t line) {
    if (!scopes_.grow_to(open_)) return false;
    innermost_ = &scopes_[open_];
    *innermost_ = {file, line, ring_at(open_), Scope::kNone, 0};
    ++open_;
    return true;
  }

  // Assign `tasks` new tasks to the innermost scope. `number`: the first of them.
  void submitted(int64_t number, uint64_t tasks = 1) {
    Scope& scope = *innermost_;
    scope.tasks += tasks;
    if (scope.first_task != Scope::kNone) return;
    scope.first_task = number;
    Oldest& oldest = oldest_[scope.ring];
    if (oldest.task == Scope::kNone) oldest = {number, depth()};
  }

  // End the innermost scope. Return the ring whose released() value may have changed.
  uint32_t end() {
    const uint32_t ring = innermost_->ring;
    // Outside the ring's oldest scope, no open scope has tasks in the ring. The scopes inside it
    // have ended. So when it ends, the ring has no tasks of an open scope.
    if (oldest_[ring].task != Scope::kNone && oldest_[ring].depth == depth()) oldest_[ring] = {};
    --open_;
    innermost_ = open_ > 0 ? &scopes_[open_ - 1] : nullptr;
    return ring;
  }

  // Return the number of the ring's first task that belongs to an open scope or, if there is none,
  // `next`, the number of the ring's next task.
  int64_t released(uint32_t ring, int64_t next) const {
    return oldest_[ring].task == Scope::kNone ? next : oldest_[ring].task;
  }

 private:
  // The outermost open scope that has tasks of its own in a ring.
  struct Oldest {
    int64_t task = Scope::kNone;  // first task of the scope
    uint32_t depth = 0;
  };

  ChunkedArray<Scope, 8> scopes_;
  Scope* innermost_ = nullptr;  // NULL if no scope is open
  uint32_t open_ = 0;
  Oldest oldest_[kRings];
};

}  // namespace pto::engine
