// The dependency pools of the rings. A task gets entries for its edges when it is published.
//
// Called by the orchestrator only.
#pragma once

#include <cstdint>

#include "draft.hpp"
#include "edges.hpp"
#include "run_state.hpp"
#include "space_wait.hpp"

namespace pto::ring_buffer {

class EdgePool {
 public:
  EdgePool(RunState& run, SpaceWait& wait) : run_(run), wait_(wait) {}

  // Write the edges of the newest task to the pool, and store their position in its descriptor.
  // Edges to producers that have retired are removed from the list. Return false if the wait for
  // free entries has failed.
  bool place(const HeldTask& held, EdgeList& edges);

 private:
  uint32_t reserve(uint32_t ring, uint32_t count);
  [[gnu::cold]] bool wait_for_entries(const HeldTask& held, EdgeList& edges, uint32_t* first);
  [[gnu::cold]] bool wait_for_fewer(const HeldTask& held, EdgeList& edges, const Blocked& blocked);
  [[gnu::cold]] bool reject_too_many(const HeldTask& held, const EdgeList& edges);
  void write(const HeldTask& held, EdgeList& edges, uint32_t first);
  void announce(const EdgeList::Item& item, SlotRef consumer);

  RunState& run_;
  SpaceWait& wait_;
};

}  // namespace pto::ring_buffer
