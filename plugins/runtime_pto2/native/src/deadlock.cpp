#include "deadlock.hpp"

#include <cstring>

#include "pto/engine/text.hpp"
#include "pto2_calls.h"
#include "report.hpp"

namespace pto::ring_buffer {
namespace {

// Return the ring whose oldest task the report names: the exhausted ring, or the outermost ring
// with live tasks if all rings share the exhausted resource.
uint32_t holding_ring(const Rings& rings, const Blocked& blocked) {
  if (blocked.what != Resource::kTensorMap) return blocked.ring;
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    if (rings.ring[ring].next > rings.ring[ring].watermark.load(std::memory_order_acquire)) {
      return ring;
    }
  }
  return blocked.ring;
}

// Programs receive the ABI's values, so these must be equal.
static_assert(static_cast<uint32_t>(Resource::kWindow) == PTO_RESOURCE_TASK_RING);
static_assert(static_cast<uint32_t>(Resource::kHeap) == PTO_RESOURCE_HEAP_RING);
static_assert(static_cast<uint32_t>(Resource::kEdges) == PTO_RESOURCE_DEPENDENCY_POOL);
static_assert(static_cast<uint32_t>(Resource::kTensorMap) == PTO_RESOURCE_TENSOR_MAP);
static_assert(static_cast<uint32_t>(Resource::kCluster) == PTO_RESOURCE_CLUSTERS);

void set_file(pto_error& error, const char* file) {
  error.file[0] = '\0';
  if (file == nullptr) return;
  // If the path is too long, keep its end, which is more useful than its beginning.
  const size_t length = std::strlen(file);
  const size_t capacity = sizeof error.file - 1;
  std::memcpy(error.file, length > capacity ? file + length - capacity : file,
              (length > capacity ? capacity : length) + 1);
}

int32_t code_of(const Proof& proof) {
  switch (proof.blocked.what) {
    case Resource::kWindow:
      return proof.scope_depth == proof.blocked.depth ? PTO2_ERROR_SCOPE_DEADLOCK
                                                      : PTO2_ERROR_FLOW_CONTROL_DEADLOCK;
    case Resource::kHeap:
      return PTO2_ERROR_HEAP_RING_DEADLOCK;
    case Resource::kEdges:
      return PTO2_ERROR_DEP_POOL_OVERFLOW;
    case Resource::kTensorMap:
      return PTO2_ERROR_TENSORMAP_OVERFLOW;
    case Resource::kTasks:
      return PTO2_ERROR_TENSOR_WAIT_TIMEOUT;
    case Resource::kCluster:
    case Resource::kNone:
      break;
  }
  return PTO2_ERROR_NONE;
}

}  // namespace

Proof take_proof(const Rings& rings, const Blocked& blocked, const Sizes& sizes) {
  Proof proof;
  proof.blocked = blocked;
  proof.sizes = sizes;
  const uint32_t index = holding_ring(rings, blocked);
  const TaskRing& ring = rings.ring[index];
  proof.current = ring.next;
  proof.last_alive = ring.watermark.load(std::memory_order_acquire);
  if (blocked.what == Resource::kWindow) {
    proof.used = static_cast<uint64_t>(proof.current - proof.last_alive);
  }
  if (proof.current == proof.last_alive || blocked.what == Resource::kCluster) return proof;
  const RingTask& oldest = ring.record(proof.last_alive);
  proof.holder = TaskId{index, proof.last_alive}.value();
  proof.holder_place = {oldest.file, oldest.line};
  proof.scope_depth = oldest.scope_depth;
  return proof;
}

void Deadlock::prove(const Proof& proof) {
  proof_ = proof;
  const Blocked& blocked = proof.blocked;
  proven_ = {};
  proven_.status = PTO_ERROR_DEADLOCK;
  proven_.func_id = blocked.func_id;
  proven_.task = proof.holder;
  proven_.other_task = static_cast<int64_t>(blocked.what);
  proven_.core = is_per_ring(blocked.what) ? static_cast<int32_t>(blocked.ring) : -1;
  proven_.line = blocked.line;
  proven_.value = proof.used + blocked.needed;
  proven_.limit = size_of(proof.sizes, blocked.what, blocked.ring);
  proven_.code = -code_of(proof);
  set_file(proven_, blocked.file);
  Text text(proven_.message, sizeof proven_.message);
  text.add("deadlock: ");
  add_exhausted(text, proof);
  text.add(". No task runs and none can start: ");
  add_chain(text, proof);
  text.add(".");
  error_.store(&proven_, std::memory_order_release);
}

void Deadlock::complete(const Plan& plan) {
  completed_ = proven_;
  Text text(completed_.message, sizeof completed_.message);
  text.add(static_cast<const char*>(proven_.message), " ");
  add_plan(text, proof_, plan);
  const Resource resource = proof_.blocked.what;
  if (plan.is_any_short(resource)) {
    completed_.value = size_of(plan.sizes, resource, proof_.blocked.ring);
  }
  error_.store(&completed_, std::memory_order_release);
}

}  // namespace pto::ring_buffer
