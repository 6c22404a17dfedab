// The recorded submits of a graph, for replays. Capture creates it, Driver replays it.
//
// The place of a tensor is a base and an offset. The bases are the tensors of the graph's
// arguments, then the graph's allocations in the order of submits. All other data is used as
// recorded. A replay writes addresses into the blobs, which are sent to the children, so only one
// run at a time may replay a graph.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "driver/records.hpp"
#include "engine/interface.hpp"
#include "pto/abi/arguments.h"

namespace pto::worker {

constexpr uint32_t kNoBase = ~uint32_t{0};

struct AddressRange {
  uint64_t begin;
  uint64_t end;
};

struct ChildRange {
  int32_t child;
  uint64_t address;
  uint64_t bytes;

  auto operator<=>(const ChildRange&) const = default;
};

// How the tasks use one tensor of the graph's arguments.
struct ArgumentUse {
  bool is_written = false;
  bool is_saved = false;  // changed in place by a task with retries, so it is saved before
};

// A tensor of a task in a submit.
struct CapturedKey {
  TensorAccess tensor;  // without an address if the submit allocates the memory
  uint32_t member;
  uint32_t base;    // kNoBase: the address is the same in every replay
  uint64_t offset;  // offset from the base
  uint64_t place;   // offset of its pto_tensor in the blobs
};

struct CapturedTask {
  Kind kind;
  bool is_hint;
  bool has_arguments;
  bool has_kinds;
  bool needs_keys;  // whether the engine allocates memory or saves regions for it
  uint16_t members;
  int32_t retries;
  uint32_t callable;
  uint32_t config;
  uint32_t timeout_ms;
  SubmitPosition place;
  uint64_t blobs;  // index of each member's first tensor
  uint32_t first_key, keys;
  uint32_t first_producer, producers;
  uint32_t first_owner, owners;
  uint32_t first_pin, pins;
};

struct CapturedStep {
  enum class What : uint8_t { kSubmit, kAllocate, kScopeBegin, kScopeEnd };
  What what;
  uint32_t task;  // for kSubmit: index in `tasks`
  uint32_t base;  // for kAllocate: number of the base
  uint64_t bytes;
};

struct CapturedGraph {
  // A place in the blobs into which a replay writes an address.
  struct Patch {
    uint64_t place;
    uint64_t offset;
  };

  // Write the address of the base into the blobs.
  void locate(uint32_t base, uint64_t address) {
    if (bases[base] == address) return;
    bases[base] = address;
    for (uint64_t at = first_patch[base]; at < first_patch[base + 1]; ++at) {
      *reinterpret_cast<uint64_t*>(blobs() + patches[at].place) = address + patches[at].offset;
    }
  }
  std::byte* blobs() { return reinterpret_cast<std::byte*>(blob_storage.data()); }

  Hazards hazards = Hazards::kRaw;
  bool states_use = false;            // whether uses follow the blobs; see TaskRecord
  std::vector<pto_tensor> arguments;  // tensors of the graph's arguments at the capture
  std::vector<ArgumentUse> uses;      // how the tasks use each of these tensors
  std::vector<uint64_t> scalars;
  std::vector<CapturedStep> steps;
  std::vector<CapturedTask> tasks;
  std::vector<CapturedKey> keys;
  std::deque<Box> boxes;  // those of the keys; they must not move
  std::vector<Known::Producer> producers;
  std::vector<uint32_t> owners;
  std::vector<int32_t> pins;
  std::vector<uint64_t> blob_storage;
  std::vector<uint64_t> bases;  // current address of each base
  std::vector<Patch> patches;   // sorted by base; the patches of a base start at first_patch[base]
  std::vector<uint64_t> first_patch;
  // ranges of memory that belong to no base: ascending, disjoint
  std::vector<AddressRange> constants;
  // child memory that tasks use: ascending, without duplicates
  std::vector<ChildRange> on_children;
};

}  // namespace pto::worker
