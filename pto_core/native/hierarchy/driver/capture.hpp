// A recording of a graph: its submits are recorded with their edges, and no task runs.
//
// A separate engine derives the edges. None of its children is ready, so no task ends. Its heap
// rings have addresses without memory and are never full. A tensor is recorded as an offset in an
// argument of the graph, in an allocation of the capture, or in other memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/driver.hpp"
#include "engine/engine.hpp"

namespace pto::hierarchy {

class Capture {
 public:
  // `number` is different for each capture, so that two captures never use the same addresses.
  // Throws Refusal if arguments overlap or have no memory.
  Capture(const Configuration& configuration, Hazards hazards, uint64_t number,
          std::span<const pto_tensor> arguments, std::span<const uint64_t> scalars);

  // Counterparts of the methods of Driver with the same names. They throw Refusal and change
  // nothing.
  int64_t submit(const Call& call);
  int64_t allocate(uint64_t bytes, uint64_t* address);
  void scope_begin();
  void scope_end();

  // Return the graph. Throws Refusal if a scope is open.
  std::shared_ptr<CapturedGraph> finish();

  // Return whether a capture allocated the memory at this address.
  static constexpr bool is_captured(uint64_t address) { return address >> 62 == 1; }

 private:
  struct Base {
    uint64_t end;
    uint32_t number;
  };
  struct Origin {
    uint32_t base;
    uint64_t offset;
  };

  void check(const Call& call) const;
  Origin origin_of(const Tensor& key) const;
  const std::pair<const uint64_t, Base>* base_at(uint64_t address) const;
  uint32_t add_base(uint64_t address, uint64_t bytes);
  void keep_keys(const Call& call, CapturedTask* task);
  void keep_uses(const MemberCall& member);
  void keep_known(int64_t number, CapturedTask* task);
  void sort_patches();
  void merge_constants();

  const Configuration configuration_;
  std::unique_ptr<Engine> engine_;
  Instructions out_;
  std::shared_ptr<CapturedGraph> graph_;
  std::map<uint64_t, Base> bases_;                                  // key: the address
  std::vector<std::pair<uint32_t, CapturedGraph::Patch>> patches_;  // base, patch
  uint32_t depth_ = 0;
  std::vector<Member> members_;
};

// Return whether the captured edges hold for a replay with `arguments`: the arguments and the
// allocations must not overlap each other or other memory of the graph.
bool lie_apart(const CapturedGraph& graph, std::span<const pto_tensor> arguments);

// Return the byte range that orders the tasks of a tensor. It has at least 1 byte.
AddressRange range_of(const pto_tensor& tensor);

}  // namespace pto::hierarchy
