// How the orchestrator learns that room has come back, and how it waits for it.
#include "orchestrator.hpp"
#include "report.hpp"

namespace pto::ring_buffer {
namespace {

// How many tasks before its turn the map's entry of a retired one is asked for.
constexpr int64_t kAhead = 8;

constexpr uint64_t kNewPictureNs = 10'000'000;  // of a wait that goes on

// Slots of a planned run reach further than the windows that were asked for.
constexpr uint64_t kPlannedWindow = 2 * static_cast<uint64_t>(Planner::kMaxTasks);

}  // namespace

void Orchestrator::sync(CleanedBy reason, int64_t least) {
  submits_to_sync_ = kSyncInterval;
  for (uint32_t index = 0; index < kRings; ++index) {
    const int64_t retired = rings_.ring[index].watermark.load(std::memory_order_seq_cst);
    if (retired - sides_[index].alive >= least) sync_ring(index, reason);
  }
}

void Orchestrator::sync_ring(uint32_t index, CleanedBy reason) {
  const TaskRing& ring = rings_.ring[index];
  Side& side = sides_[index];
  const int64_t retired = ring.watermark.load(std::memory_order_seq_cst);
  if (retired == side.alive) return;
  for (int64_t number = side.alive; number < retired; ++number) {
    if (number + kAhead < retired) map_.prepare_to_retire(ring.record(number + kAhead));
    TaskRecord& record = ring.record(number);
    if (record.first_entry != 0) map_.retire(record, reason);
    if (record.payload != nullptr) payloads_.give_back(record.payload, record.payload_class);
  }
  const TaskRecord& newest = ring.record(retired - 1);
  side.heap_tail = newest.heap_end;
  if (side.edges_alive < retired) {
    side.edges_alive = retired;
    side.edges_tail += newest.edges_end - static_cast<uint32_t>(side.edges_tail);
  }
  side.alive = retired;
  map_.saw(index, retired);
}

// Edges are free as soon as their consumer is done, whether its scope has ended or not.
void Orchestrator::free_done_edges(uint32_t index) {
  const TaskRing& ring = rings_.ring[index];
  Side& side = sides_[index];
  const int64_t end = first_unwired(index);
  while (side.edges_alive < end) {
    const uint32_t phase = ring.state(side.edges_alive).phase.load(std::memory_order_acquire);
    if (phase != kDone && phase != kConsumed) return;
    const uint32_t tail = ring.record(side.edges_alive).edges_end;
    side.edges_tail += tail - static_cast<uint32_t>(side.edges_tail);
    ++side.edges_alive;
  }
}

// The state of a task means nothing before it has been wired.
int64_t Orchestrator::first_unwired(uint32_t index) const {
  const TaskRing& ring = rings_.ring[index];
  const uint64_t wired = rings_.wired.load(std::memory_order_acquire);
  for (uint64_t entry = wired; entry != logged_; ++entry) {
    const SlotRef ref = rings_.log[entry & (rings_.log_size - 1)];
    if (ring_of(ref) != index) continue;
    const uint32_t newest = ring.slot(ring.next - 1);
    const uint32_t back = (newest - slot_of(ref)) & (ring.window - 1);
    return ring.next - 1 - static_cast<int64_t>(back);
  }
  // The newest submit is not in the log while it is held back.
  return held_.count != 0 && held_.ring == index ? held_.number : ring.next;
}

Blocked Orchestrator::blocked_on(Resource what, const Draft& draft, uint64_t needed) const {
  Blocked blocked;
  blocked.what = what;
  blocked.ring = draft.ring;
  blocked.depth = scopes_.depth();
  blocked.needed = needed;
  blocked.func_id = draft.task.func_id;
  blocked.file = draft.task.file;
  blocked.line = draft.task.file != nullptr ? draft.task.line : -1;
  return blocked;
}

bool Orchestrator::wait(bool (*look)(void*), void* context) {
  flush();
  const pto_platform* platform = context_.platform;
  const uint64_t start = platform->now(platform->self);
  uint64_t pictured = 0;
  blocked_.since_ns = start;
  is_quiet_ = was_let_go_ = false;
  look_ = look;
  look_context_ = context;
  pto_status status = PTO_OK;
  bool has_room = false;
  while (status == PTO_OK && !context_.latch.is_set()) {
    const uint32_t seen = rings_.signal.load(std::memory_order_acquire);
    rings_.waiting.store(1, std::memory_order_seq_cst);
    scheduler_.synchronise();
    has_room = was_let_go_ || look(context);
    if (has_room) break;
    if (pictured == 0) {
      pictured = start;
      picture_wait();
    }
    scheduler_.published();
    pto_yield(platform, PTO_YIELD_BLOCKED);
    status =
        platform->wait(platform->self, reinterpret_cast<const uint32_t*>(&rings_.signal), seen);
    const uint64_t now = platform->now(platform->self);
    if (now - pictured < kNewPictureNs) continue;
    pictured = now;
    picture_wait();
    tell_long_wait();
  }
  rings_.waiting.store(0, std::memory_order_relaxed);
  statistics_.add_blocked(blocked_.what, platform->now(platform->self) - start);
  blocked_.what = Resource::kNone;
  if (pictured != 0) long_wait_.leave();
  if (!has_room && deadlock_.is_proven()) enter_planning();
  return has_room;
}

bool Orchestrator::can_go_on() {
  is_quiet_ = true;
  was_let_go_ = look_(look_context_);
  return was_let_go_;
}

Proof Orchestrator::proof() const {
  Proof proof = take_proof(rings_, blocked_, sizes_);
  const Side& side = sides_[blocked_.ring];
  uint32_t depth = proof.scope_depth;
  switch (blocked_.what) {
    case Resource::kHeap:
      proof.used = side.heap.used(side.heap_tail);
      break;
    case Resource::kEdges:
      proof.used = side.edges.used(side.edges_tail);
      break;
    case Resource::kTensorMap:
      proof.used = map_.needed(0);
      break;
    case Resource::kCluster:
      proof.used = clusters_.taken();
      depth = proof.scope_depth = clusters_.outermost_depth();
      break;
    default:
      break;
  }
  if (depth < scopes_.open()) proof.scope_place = {scopes_.at(depth).file, scopes_.at(depth).line};
  return proof;
}

void Orchestrator::picture_wait() {
  const Proof now = proof();
  long_wait_.enter({blocked_, now.used, now.current, now.last_alive});
}

void Orchestrator::tell_long_wait() {
  const pto_platform* platform = context_.platform;
  const uint64_t now = platform->now(platform->self);
  LongWait::Picture picture;
  if (!long_wait_.is_due(now, &picture)) return;
  Proof proof;
  proof.blocked = picture.blocked;
  proof.sizes = sizes_;
  proof.used = picture.used;
  proof.current = picture.current;
  proof.last_alive = picture.last_alive;
  char line[512];
  Text text(line, sizeof line);
  add_blocked(text, proof, now - picture.blocked.since_ns);
  platform->log(platform->self, PTO_LOG_WARN, line);
}

void Orchestrator::wake() {
  rings_.wake_orchestrator(context_.platform);
}

void Orchestrator::enter_planning() {
  sync(CleanedBy::kBatch, 1);
  planner_.enter(rings_, sizes_);
  if (!edges_.grow(context_.memory, kPlannedWindow)) stop_planning();
}

}  // namespace pto::ring_buffer
