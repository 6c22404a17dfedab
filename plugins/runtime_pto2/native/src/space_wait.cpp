#include "space_wait.hpp"

#include "report.hpp"

namespace pto::ring_buffer {
namespace {

// how often a waiting orchestrator updates the description of its wait
constexpr uint64_t kUpdateNs = 10'000'000;

}  // namespace

bool SpaceWait::wait(bool (*has_space)(void*), void* context) {
  run_.stream.announce();
  Rings& rings = run_.rings;
  const pto_platform* platform = run_.context.platform;
  const uint64_t start = platform->now(platform->self);
  const uint64_t began = (platform->tracing & PTO_TRACE_WAITS) != 0 ? pto_clock(platform) : 0;
  uint64_t updated = 0;
  blocked_.since_ns = start;
  is_stalled_ = has_reserved_ = false;
  has_space_ = has_space;
  has_space_context_ = context;
  pto_status status = PTO_OK;
  bool is_free = false;
  while (status == PTO_OK && !run_.context.latch.is_set()) {
    const uint32_t seen = rings.signal.load(std::memory_order_acquire);
    rings.waiting.store(1, std::memory_order_seq_cst);
    run_.scheduler.synchronise();
    is_free = has_reserved_ || has_space(context);
    if (is_free) break;
    if (updated == 0) {
      updated = start;
      update_long_wait();
    }
    run_.scheduler.published();
    pto_yield(platform, PTO_YIELD_BLOCKED);
    status = platform->wait(platform->self, reinterpret_cast<const uint32_t*>(&rings.signal), seen);
    const uint64_t now = platform->now(platform->self);
    if (now - updated < kUpdateNs) continue;
    updated = now;
    update_long_wait();
    log_long_wait();
  }
  rings.waiting.store(0, std::memory_order_relaxed);
  run_.statistics.add_blocked(blocked_.what, platform->now(platform->self) - start);
  pto_record(platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_BACK_PRESSURE, began,
             static_cast<uint64_t>(blocked_.what) | uint64_t{blocked_.ring} << 8);
  blocked_.what = Resource::kNone;
  if (updated != 0) long_wait_.leave();
  return is_free;
}

bool SpaceWait::can_continue() {
  is_stalled_ = true;
  has_reserved_ = has_space_(has_space_context_);
  return has_reserved_;
}

Proof SpaceWait::proof() const {
  Proof proof = take_proof(run_.rings, blocked_, run_.sizes);
  const RingSpace& ring = run_.space.ring(blocked_.ring);
  uint32_t depth = proof.scope_depth;
  switch (blocked_.what) {
    case Resource::kHeap:
      proof.used = ring.heap.used(ring.heap_tail);
      break;
    case Resource::kEdges:
      proof.used = ring.edges.used(ring.edges_tail);
      break;
    case Resource::kTensorMap:
      proof.used = run_.space.map().needed(0);
      break;
    case Resource::kCluster:
      proof.used = run_.clusters.taken();
      depth = proof.scope_depth = run_.clusters.outermost_depth();
      break;
    default:
      break;
  }
  if (depth < run_.scopes.open()) {
    const Scope& scope = run_.scopes.at(depth);
    proof.scope_place = {scope.file, scope.line};
  }
  return proof;
}

void SpaceWait::update_long_wait() {
  const Proof now = proof();
  long_wait_.enter({blocked_, now.used, now.current, now.last_alive});
}

void SpaceWait::log_long_wait() {
  const pto_platform* platform = run_.context.platform;
  const uint64_t now = platform->now(platform->self);
  LongWait::Picture picture;
  if (!long_wait_.is_due(now, &picture)) return;
  Proof proof;
  proof.blocked = picture.blocked;
  proof.sizes = run_.sizes;
  proof.used = picture.used;
  proof.current = picture.current;
  proof.last_alive = picture.last_alive;
  char line[512];
  Text text(line, sizeof line);
  add_blocked(text, proof, now - picture.blocked.since_ns);
  platform->log(platform->self, PTO_LOG_WARN, line);
}

}  // namespace pto::ring_buffer
