// A run of a graph of which nothing runs: its submits are recorded, with what they wait for.
//
// An engine of its own finds that: it has no child that is ready, so nothing ends, and heap rings
// that never fill, at addresses that no memory has. Every tensor is found again by where it lies:
// in one of the graph's arguments, in what the capture has allocated, or anywhere else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "driver/captured_graph.hpp"
#include "driver/driver.hpp"
#include "engine/native_engine.hpp"

namespace pto::hierarchy {

class Capture {
 public:
  // `number`: of this capture, so that no other has its addresses. Throws Refusal for arguments
  // that overlap, or have no memory.
  Capture(const Configuration& configuration, Hazards hazards, uint64_t number,
          std::span<const pto_tensor> arguments, std::span<const uint64_t> scalars);

  // As those of Driver. Throw Refusal and change nothing.
  int64_t submit(const Call& call);
  int64_t allocate(uint64_t bytes, uint64_t* address);
  void scope_begin();
  void scope_end();

  // Throws Refusal where a scope is open.
  std::shared_ptr<CapturedGraph> finish();

  // Whether a capture, whichever, allocated it.
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
  void keep_known(int64_t number, CapturedTask* task);
  void sort_patches();
  void merge_constants();

  const Configuration configuration_;
  std::unique_ptr<NativeEngine> engine_;
  Instructions out_;
  std::shared_ptr<CapturedGraph> graph_;
  std::map<uint64_t, Base> bases_;                                  // by address
  std::vector<std::pair<uint32_t, CapturedGraph::Patch>> patches_;  // base, patch
  uint32_t depth_ = 0;
  std::vector<Member> members_;
};

// Whether everything that may move lies apart, from each other and from the rest, so that what was
// found at the capture holds: `arguments` are the tensors of a replay.
bool lie_apart(const CapturedGraph& graph, std::span<const pto_tensor> arguments);

// The bytes that a tensor orders by: at least one.
AddressRange range_of(const pto_tensor& tensor);

}  // namespace pto::hierarchy
