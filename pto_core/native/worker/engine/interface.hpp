// The events that the driver passes to the engine, and the results and instructions that it
// returns.
//
// The reference engine of the conformance kit, pto_devkit.engine, is the specification: the rules,
// texts and numbers are the same.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "pto/abi/arguments.h"
#include "pto/engine/tag.hpp"

namespace pto::worker {

// A child that the policy of an unpinned single task may choose.
struct Candidate {
  int32_t child;
  uint64_t in_flight;
};

// Choose a child. Arguments: the children with free space in ascending order, the child of the
// task's last producer or kNone, and the number of the task. The result must be one of those
// children. If the function is empty, the engine chooses the child with the fewest frames in
// flight. If several children have the fewest, it prefers the child of the last producer, then the
// first child.
using Policy =
    std::function<int32_t(std::span<const Candidate> candidates, int32_t preferred, int64_t task)>;

constexpr int64_t kNone = -1;  // means no task, no child, or no cause
constexpr uint32_t kRings = 4;
constexpr uint32_t kMaxRuns = 256;  // the largest number of runs that are open at once
constexpr uint64_t kSlabBytes = 1024;
constexpr uint32_t kMaxDims = 5;
// An upper limit for addresses in the memory of a child.
constexpr uint64_t kChildMemoryEnd = uint64_t{1} << 48;

// Return the number of bytes that an output occupies in its slab. If rounding up would overflow,
// return a number that is larger than any ring.
constexpr uint64_t rounded(uint64_t bytes) {
  constexpr uint64_t kMost = ~uint64_t{0} - kSlabBytes;
  return ((bytes < kMost ? bytes : kMost) + kSlabBytes - 1) / kSlabBytes * kSlabBytes;
}

enum class Kind : uint8_t { kNextLevel = 0, kSub = 1 };
using engine::Tag;

enum class Hazards : uint8_t { kRaw = 0, kFull = 1 };
enum class Outcome : uint8_t { kSucceeded = 0, kFailed = 1, kSkipped = 2 };
enum class Result : uint8_t { kCompleted = 0, kFailed = 1, kPoisoned = 2 };

// The part of a buffer that a view selects in each dimension. Numbers are in elements, and the
// fastest dimension is first.
struct Box {
  uint64_t base;  // address of the first byte of the buffer
  uint32_t element_bytes;
  uint32_t dims;
  uint64_t raw[kMaxDims];
  uint64_t low[kMaxDims];
  uint64_t extent[kMaxDims];
};

// A range of bytes, or a box if `box` is not NULL. If `bytes` is 0, it is a key. For an OUTPUT with
// address 0 the engine allocates memory and writes the address. Several children may have memory at
// the same address; a tensor overlaps only tensors with the same `child`.
struct TensorAccess {
  uint64_t address;
  uint64_t bytes;
  const Box* box;
  Tag tag;
  int32_t child = static_cast<int32_t>(kNone);  // the child that owns the memory; kNone: the host
};

// Return the number of bytes in the elements of a box.
constexpr uint64_t bytes_of(const Box& box) {
  uint64_t bytes = box.element_bytes;
  for (uint32_t dim = 0; dim < box.dims; ++dim) bytes *= box.extent[dim];
  return bytes;
}

constexpr bool is_allocated(const TensorAccess& tensor) {
  return tensor.tag == Tag::kOutput && tensor.address == 0;
}

// The arguments of one member of a task. The engine uses `tensors` only, and writes the addresses
// that it allocates. The rest is for the frame of the member.
struct Member {
  std::span<TensorAccess> tensors;
  std::span<const pto_tensor> arguments =
      {};  // the same tensors, with the addresses that were passed
  std::span<const uint64_t> scalars = {};
};

// The reasons why a task waits for a producer, as bits. Without a bit, the reason is that the task
// overwrites memory that the producer read or wrote.
enum Why : uint8_t {
  kOrders = 0,
  kData = 1,      // the task reads an output of the producer, and holds a reference to the
                  // producer's slot
  kExplicit = 2,  // the program requested the edge
  // the regions certainly overlap; if it is not set, perhaps only their byte hulls overlap
  kCertain = 4,
  kOwner = 8  // not an edge: the task uses a buffer in the producer's slab; only used inside the
              // engine
};

// The result of capturing the same submits: the edges and owners of the task, as distances counted
// in submits.
struct Known {
  struct Producer {
    uint32_t distance;
    uint8_t why;
  };
  std::span<const Producer> producers;
  std::span<const uint32_t> owners;
};

// The source position of a submit, as numbers that the host can translate.
struct SubmitPosition {
  uint32_t code = 0;  // number of a code object; 0: unknown
  int32_t instruction = 0;
};

struct RunOutcomes;

// A submit. The engine and the driver copy the data that they need, so the caller may free the rest
// after the call.
struct Submission {
  Kind kind = Kind::kNextLevel;
  bool is_hint = false;  // whether `pins` are only hints
  int32_t retries = 0;
  uint32_t timeout_ms = 0;
  std::span<const Member> members;
  std::span<const int32_t> pins;   // empty, or one child for each member
  std::span<const int64_t> after;  // explicit dependencies: earlier tasks of the run
  // Set for a replay. Then the engine neither searches nor inserts tensors. The caller may omit all
  // tensors except tensors to allocate and, for a task with retries, INOUT tensors.
  const Known* known = nullptr;
  uint32_t run = 0;  // the number of the run

  // The rest is for the driver; the engine ignores it.
  RunOutcomes* outcomes = nullptr;  // the run of the task; null: the run that began last
  bool has_arguments = true;
  bool has_kinds = false;  // see PTO_FRAME_HAS_KINDS
  uint32_t callable = 0;
  uint32_t config = 0;
  SubmitPosition place;
};

// The result of a submit: the number of the task. If there is no free space, the number is kNone
// and nothing has changed.
struct Submitted {
  int64_t task = kNone;  // kNone: blocked
  uint32_t ring = 0;
  uint64_t requested = 0;
  uint64_t used = 0;
  uint64_t size = 0;
};

struct Instruction {
  enum class What : uint8_t {
    kSend,            // uses child, count, task, member; requires (required_child, required_count)
    kSaveRegions,     // uses task
    kRestoreRegions,  // uses task
    kDropRegions,     // uses task
    kTaskFinished,    // uses task, result, cause, root
    kRoomFreed,       // uses ring
    kEndChild,        // uses child, cause
    kRunFinished      // uses task: the number of tasks of the run; count: the number of the run
  };
  What what;
  Result result;
  uint16_t ring;
  int32_t child;
  int32_t member;
  int32_t required_child;  // kNone: nothing is required
  int64_t task;
  union {
    uint64_t count;
    int64_t cause;
  };
  union {
    uint64_t required_count;
    int64_t root;
  };
};
static_assert(sizeof(Instruction) == 40);
using Instructions = std::vector<Instruction>;

// The proof that a submit can never succeed.
struct Deadlock {
  uint32_t ring;
  uint64_t requested;
  uint64_t held;
  uint64_t size;
  int64_t oldest_task;
  int32_t open_scope;
};

struct ChildConfiguration {
  Kind kind;
  uint32_t window;  // maximum number of frames in flight
  // whether the child receives pto_tensor.use in its frames; the engine ignores this
  bool receives_use = false;
};

struct RingConfiguration {
  uint64_t address;
  uint64_t size;
};

struct Configuration {
  std::vector<ChildConfiguration> children;
  RingConfiguration rings[kRings];
  bool repeats_lost = false;
  bool places_by_inputs = false;  // whether the policy needs the uses of tensors

  bool states_use() const {
    if (places_by_inputs) return true;
    for (const ChildConfiguration& child : children)
      if (child.receives_use) return true;
    return false;
  }
};

// The exception for an invalid call. It is converted to an exception of the error tree for the
// caller.
class Refusal : public std::runtime_error {
 public:
  enum class Kind { kUsage, kCapacity, kProtocol, kInternal, kClosed };
  Refusal(Kind kind, const std::string& text) : std::runtime_error(text), kind(kind) {}
  const Kind kind;
};

[[noreturn]] inline void refuse_usage(const std::string& text) {
  throw Refusal(Refusal::Kind::kUsage, text);
}

// Return an address as text, for example 0x7f00.
inline std::string hex(uint64_t address) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace pto::worker
