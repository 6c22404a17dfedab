#include "live_rings.hpp"

#include <cstring>

#include "pto2_calls.h"
#include "report.hpp"

namespace pto::ring_buffer {

bool EdgePool::place(const HeldTask& held, EdgeList& edges) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  if (edges.count() != 0) {
    uint32_t first = reserve(held.ring, edges.count());
    if (first == 0 && !wait_for_entries(held, edges, &first)) return false;
    // first is 0 if all producers retired during the wait
    if (first != 0) {
      TaskDescriptor& descriptor = ring.descriptor(held.number);
      descriptor.first_edge = held.ring << 30 | first;
      descriptor.edge_count = edges.count();
      write(held, edges, first);
    }
  }
  const uint32_t end = static_cast<uint32_t>(run_.space.ring(held.ring).edges.head());
  for (uint32_t block = 0; block < held.count; ++block) {
    ring.record(held.number + block).edges_end = end;
  }
  return true;
}

uint32_t EdgePool::reserve(uint32_t index, uint32_t count) {
  RingSpace& ring = run_.space.ring(index);
  const HeapRing::Range range = ring.edges.try_reserve(count, ring.edges_tail);
  if (!range.fits) return 0;
  const uint64_t used = ring.edges.used(ring.edges_tail);
  uint64_t& peak = run_.statistics.ring[index].dependencies_peak;
  if (used > peak) peak = used;
  return static_cast<uint32_t>(range.position);
}

bool EdgePool::wait_for_entries(const HeldTask& held, EdgeList& edges, uint32_t* first) {
  const RingTask& record = run_.rings.ring[held.ring].record(held.number);
  Blocked blocked;
  blocked.what = Resource::kEdges;
  blocked.ring = held.ring;
  blocked.depth = run_.scopes.depth();
  blocked.needed = edges.count();
  blocked.func_id = record.func_id;
  blocked.file = record.file;
  blocked.line = record.file != nullptr ? record.line : -1;
  FreeSpace& space = run_.space;
  if (!space.ring(held.ring).edges.can_ever_fit(edges.count()) &&
      !wait_for_fewer(held, edges, blocked)) {
    return false;
  }
  const auto has_space = [&] {
    if (edges.count() == 0) return true;
    space.sync_ring(held.ring, CleanedBy::kBatch);
    space.free_done_edges(held.ring, run_.stream.first_unwired(held.ring, held.number));
    *first = reserve(held.ring, edges.count());
    return *first != 0;
  };
  return has_space() || wait_.wait_until(blocked, has_space);
}

// Called if the task has more edges than the pool has entries. Edges to retired producers are not
// needed. But the result must not depend on the time at which producers retire, so this waits until
// no task runs, and reports an error only if the edges are then still too many.
bool EdgePool::wait_for_fewer(const HeldTask& held, EdgeList& edges, const Blocked& blocked) {
  if (!wait_.wait_until(blocked, [this] { return wait_.is_stalled(); })) return false;
  FreeSpace& space = run_.space;
  space.sync(CleanedBy::kBatch, 1);
  edges.drop([&](SlotRef producer) { return space.has_retired(producer); });
  return space.ring(held.ring).edges.can_ever_fit(edges.count()) || reject_too_many(held, edges);
}

bool EdgePool::reject_too_many(const HeldTask& held, const EdgeList& edges) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  const RingTask& record = ring.record(held.number);
  const int64_t id = TaskId{held.ring, held.number}.value();
  ErrorFacts facts{PTO_ERROR_CAPACITY, id, -1, record.func_id};
  facts.value = uint64_t{edges.count()} + 1;
  facts.limit = ring.edge_capacity;
  facts.code = -PTO2_ERROR_DEP_POOL_OVERFLOW;
  run_.context.fail_at(record.file, record.line, facts, RingTaskName{id}, " (function ",
                       record.func_id, ") depends on ", edges.count(),
                       " live tasks, and the dependency pool of ring ", held.ring,
                       " has entries for ", run_.space.ring(held.ring).edges.capacity(),
                       "; it needs at least ", Setting{Resource::kEdges, facts.value});
  return false;
}

void EdgePool::write(const HeldTask& held, EdgeList& edges, uint32_t first) {
  const TaskRing& ring = run_.rings.ring[held.ring];
  const SlotRef consumer = slot_ref(held.ring, ring.slot(held.number));
  const pto_platform* platform = run_.context.platform;
  Edge* edge = ring.edges + first;
  if (platform->deterministic != 0) edges.sort();
  const EdgeList::Item* const end = edges.end();
  const bool is_observed = platform->deterministic != 0 ||
                           (platform->tracing & (PTO_TRACE_EDGES | PTO_TRACE_ORDER)) != 0;
  for (const EdgeList::Item* item = edges.begin(); item != end; ++item, ++edge) {
    if (is_observed) announce(*item, consumer);
    *edge = {item->producer, consumer, kNoEdge, item->kind};
  }
}

void EdgePool::announce(const EdgeList::Item& item, SlotRef consumer) {
  const pto_platform* platform = run_.context.platform;
  pto_yield(platform, PTO_YIELD_EDGE);
  if ((item.kind & kOrders) == 0) return;
  pto_trace(platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_EDGE,
            static_cast<uint64_t>(run_.rings.descriptor(item.producer).id),
            static_cast<uint64_t>(run_.rings.descriptor(consumer).id));
}

void HeapMemory::destroy() {
  for (uint64_t& base : bases_) {
    if (base != 0) context_.platform->free(context_.platform->self, base);
    base = 0;
  }
}

pto_status HeapMemory::open(uint32_t ring) {
  const pto_platform* platform = context_.platform;
  const uint64_t bytes = space_.ring(ring).heap.capacity();
  uint64_t base = 0;
  const pto_status status = platform->allocate_ring(platform->self, bytes, &base);
  if (status != PTO_OK) return status;
  bases_[ring] = base;
  const uint64_t end = base + (bytes << gap_shift_);
  const uint64_t high = span_ != 0 && low_ + span_ > end ? low_ + span_ : end;
  if (span_ == 0 || base < low_) low_ = base;
  span_ = high - low_;
  return PTO_OK;
}

bool HeapMemory::find_ring_of(uint64_t address, uint32_t* ring) const {
  for (*ring = 0; *ring < kRings; ++*ring) {
    if (bases_[*ring] == 0) continue;
    if (address - bases_[*ring] < space_.ring(*ring).heap.capacity() << gap_shift_) return true;
  }
  return false;
}

// The heap ranges of live tasks have the order of the task numbers. So only the last range that
// starts at or before the address can contain it.
int64_t HeapMemory::owner_of(uint32_t index, uint64_t address) const {
  const TaskRing& ring = rings_.ring[index];
  const RingSpace& space = space_.ring(index);
  const uint64_t size = space.heap.capacity();
  const uint64_t head = space.heap.head();
  uint64_t offset = head - head % size + ((address - bases_[index]) >> gap_shift_);
  if (offset >= head) offset -= size;
  int64_t low = space.alive;
  int64_t high = ring.next;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (ring.record(middle).heap_begin <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == space.alive) return kNoTask;
  const RingTask& record = ring.record(low - 1);
  const bool is_inside = offset >= record.heap_begin && offset < record.heap_end;
  return is_inside ? TaskId{index, low - 1}.value() : kNoTask;
}

bool LiveRings::wait_for_slots(const Draft& draft) {
  const uint32_t window = run_.rings.ring[draft.ring].window;
  if (draft.count >= window) {
    ErrorFacts facts{PTO_ERROR_CAPACITY};
    facts.value = draft.count;
    facts.limit = window - 1;
    facts.code = -PTO2_ERROR_FLOW_CONTROL_DEADLOCK;
    return reject(run_.context, draft, facts, "a block task of ", draft.count,
                  " blocks can never fit into the task window of ring ", draft.ring,
                  ", which holds ", window - 1, " tasks; it needs at least ",
                  Setting{Resource::kWindow, uint64_t{1} << (64 - __builtin_clzll(draft.count))});
  }
  const auto has_space = [&] {
    run_.space.sync_ring(draft.ring, CleanedBy::kBatch);
    return run_.space.has_slots(draft.ring, draft.count);
  };
  return has_space() ||
         wait_.wait_until(blocked_on(Resource::kWindow, draft, draft.count), has_space);
}

bool LiveRings::reserve_outputs(Draft& draft) {
  RingSpace& ring = run_.space.ring(draft.ring);
  const uint64_t bytes = draft.output_bytes;
  if (!heaps_.is_open(draft.ring) && !open_heap(draft)) return false;
  if (!ring.heap.can_ever_fit(bytes)) return reject_outputs(draft);
  HeapRing::Range range = ring.heap.try_reserve(bytes, ring.heap_tail);
  const auto has_space = [&] {
    run_.space.sync_ring(draft.ring, CleanedBy::kBatch);
    range = ring.heap.try_reserve(bytes, ring.heap_tail);
    return range.fits;
  };
  if (!range.fits && !has_space() &&
      !wait_.wait_until(blocked_on(Resource::kHeap, draft, bytes), has_space)) {
    return false;
  }
  draft.heap_address = heaps_.address(draft.ring, range.position);
  draft.heap_begin = range.begin;
  draft.gap_shift = heaps_.gap_shift();
  history_.reserve(draft.ring, bytes);
  const uint64_t used = ring.heap.used(ring.heap_tail);
  uint64_t& peak = run_.statistics.ring[draft.ring].heap_peak;
  if (used > peak) peak = used;
  return true;
}

bool LiveRings::open_heap(const Draft& draft) {
  const uint64_t bytes = run_.space.ring(draft.ring).heap.capacity();
  const pto_status status = heaps_.open(draft.ring);
  if (status == PTO_OK) return true;
  ErrorFacts facts{status};
  facts.value = bytes;
  return reject(run_.context, draft, facts, "the device has no memory for the heap of ring ",
                draft.ring, ", ", bytes,
                " bytes; use a smaller heap: --set pto2.heap=BYTES, environment PTO2_RING_HEAP");
}

bool LiveRings::reject_outputs(const Draft& draft) {
  ErrorFacts facts{PTO_ERROR_CAPACITY};
  facts.value = draft.output_bytes;
  facts.limit = run_.sizes.options.heap[draft.ring];
  facts.code = -PTO2_ERROR_HEAP_RING_DEADLOCK;
  return reject(run_.context, draft, facts, "the outputs of ", RingTaskName{draft.id},
                " (function ", draft.task.func_id, ") take ", draft.output_bytes,
                " bytes and can never fit into the heap of ring ", draft.ring, ", which has ",
                facts.limit, "; it needs at least ", Setting{Resource::kHeap, draft.output_bytes});
}

bool LiveRings::lend_output(const Draft& draft, uint32_t parameter) {
  const pto_platform* platform = run_.context.platform;
  if (platform->checking == 0) return true;
  const pto_buffer& buffer = draft.task.params[parameter].value.tensor->buffer;
  ErrorLatch blank;
  pto_error cause = *blank.error();
  const pto_status status = platform->lend(platform->self, buffer.addr, buffer.size, &cause);
  if (status == PTO_OK) return true;
  ErrorFacts facts{status};
  facts.value = cause.value;
  facts.limit = cause.limit;
  return reject(run_.context, draft, facts, "when the outputs of ", RingTaskName{draft.id},
                " (function ", draft.task.func_id,
                ") received their memory: ", static_cast<const char*>(cause.message));
}

bool LiveRings::wait_for_entries(const Draft& draft) {
  TensorMap& map = run_.space.map();
  if (!map.can_ever_hold(draft.entries)) {
    ErrorFacts facts{PTO_ERROR_CAPACITY};
    facts.value = draft.entries;
    facts.limit = run_.sizes.options.tensor_map_pool;
    facts.code = -PTO2_ERROR_TENSORMAP_OVERFLOW;
    return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ",
                  draft.task.func_id, ") takes ", draft.entries,
                  " entries and can never fit into the tensor map's pool, which has ", facts.limit,
                  "; it needs at least ", Setting{Resource::kTensorMap, draft.entries});
  }
  const auto has_space = [&] {
    run_.space.sync(CleanedBy::kBackPressure, 1);
    return map.has_space(draft.entries);
  };
  return has_space() ||
         wait_.wait_until(blocked_on(Resource::kTensorMap, draft, draft.entries), has_space);
}

bool LiveRings::write(Draft& draft) {
  if (!write_payload(draft)) return false;
  for (uint32_t block = 0; block < draft.count; ++block) write_descriptor(draft, block);
  if (run_.context.platform->tracing != 0) trace_submit(draft);
  return true;
}

bool LiveRings::write_payload(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  if (task.api != PTO_API_2026_03) return write_chip_payload(draft);
  const uint32_t num_args = draft.tensors + draft.scalars;
  uint32_t offset = static_cast<uint32_t>(sizeof(pto_payload)) + 8 * num_args;
  draft.payload.block_id_at = offset - 8;
  draft.payload.length = offset + draft.tensors * static_cast<uint32_t>(sizeof(pto_tensor_data));
  pto_payload* payload = take_payload(draft);
  if (payload == nullptr) return false;
  uint64_t* args = pto_payload_args(payload);
  uint64_t relative = 0;
  const pto_param* const params = task.params;
  const uint32_t count = task.num_params;
  for (uint32_t index = 0; index < count; ++index) {
    const pto_param& param = params[index];
    if (param.tag == PTO_TAG_SCALAR) {
      args[index] = param.value.scalar;
      continue;
    }
    auto* copy = reinterpret_cast<pto_tensor_data*>(reinterpret_cast<char*>(payload) + offset);
    std::memcpy(copy, param.value.tensor, sizeof *copy);
    copy->tag = static_cast<uint8_t>(param.tag);
    args[index] = offset;
    offset += static_cast<uint32_t>(sizeof(pto_tensor_data));
    relative |= uint64_t{1} << index;
  }
  if (draft.is_block_task()) {
    args[count] = task.block_dim;
    args[count + 1] = 0;
  }
  write_header(draft, num_args, relative);
  return true;
}

inline pto_payload* LiveRings::take_payload(Draft& draft) {
  draft.payload.size_class = Payloads::class_of(draft.payload.length);
  draft.payload.memory = run_.space.payloads().take(draft.payload.size_class);
  if (draft.payload.memory == nullptr) {
    reject(run_.context, draft, {PTO_ERROR_MEMORY}, "no memory for the payload of ",
           RingTaskName{draft.id}, "; free memory or use a smaller task_window");
  }
  return draft.payload.memory;
}

void LiveRings::write_header(const Draft& draft, uint32_t num_args, uint64_t relative) {
  pto_payload& payload = *draft.payload.memory;
  payload.kernel = draft.kernel;
  payload.task = static_cast<uint64_t>(draft.id);
  payload.cookie = draft.task.cookie;
  payload.func_id = draft.task.func_id;
  payload.num_args = num_args;
  payload.relative_args = relative;
}

namespace {

uint64_t published_id(int64_t id) {
  if (id == kNoTask) return ~uint64_t{0};
  const TaskId task = TaskId::of(id);
  return uint64_t{task.ring} << 32 | static_cast<uint32_t>(task.number);
}

}  // namespace

bool LiveRings::write_chip_payload(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  draft.payload.block_id_at = offsetof(ChipPayload, local);
  draft.payload.length =
      static_cast<uint32_t>(sizeof(ChipPayload) + draft.tensors * sizeof(pto_chip_tensor));
  if (take_payload(draft) == nullptr) return false;
  ChipPayload& payload = *reinterpret_cast<ChipPayload*>(draft.payload.memory);
  std::memset(payload.args, 0, sizeof payload - offsetof(ChipPayload, args));
  constexpr uint64_t kContexts = uint64_t{3} << PTO_CONTEXT_ARGS;
  uint64_t relative = kContexts;
  auto* copy = reinterpret_cast<pto_chip_tensor*>(&payload + 1);
  for (uint32_t index = 0; index < task.num_params; ++index) {
    const pto_param& param = task.params[index];
    if (param.tag == PTO_TAG_SCALAR) {
      payload.args[index] = param.value.scalar;
      continue;
    }
    const auto& tensor = *reinterpret_cast<const pto_chip_param*>(param.value.tensor);
    *copy = tensor.chip;
    copy->buffer = tensor.memory.buffer;
    copy->owner_task_id = published_id(tensor.memory.owner);
    payload.args[index] =
        static_cast<uint64_t>(reinterpret_cast<char*>(copy++) - reinterpret_cast<char*>(&payload));
    relative |= uint64_t{1} << index;
  }
  payload.args[PTO_CONTEXT_ARGS] = offsetof(ChipPayload, local);
  payload.args[PTO_CONTEXT_ARGS + 1] = offsetof(ChipPayload, global);
  payload.local.block_num = static_cast<int32_t>(draft.count);
  for (uint32_t lane = 0; lane < PTO_LANES && task.lanes != 0; ++lane) {
    payload.lanes[lane] = {draft.lane_kernels[lane], task.lane_func_ids[lane],
                           lane == PTO_LANES - 1 ? 1 : 0};
  }
  if (task.predicate != nullptr) payload.predicate = *task.predicate;
  write_header(draft, PTO_CONTEXT_ARGS + 2, relative);
  return true;
}

void LiveRings::write_descriptor(const Draft& draft, uint32_t block) {
  const pto_tensor_task& task = draft.task;
  const TaskRing& ring = run_.rings.ring[draft.ring];
  const int64_t number = draft.number + block;
  TaskDescriptor& descriptor = ring.descriptor(number);
  descriptor.payload = draft.payload.memory;
  descriptor.id = TaskId{draft.ring, number}.value();
  descriptor.first_edge = kNoEdge;
  descriptor.edge_count = 0;
  descriptor.cluster = descriptor.group = -1;
  descriptor.block_dim = task.block_dim;
  descriptor.block_id = block;
  descriptor.head = slot_ref(draft.ring, ring.slot(draft.number));
  descriptor.payload_length = static_cast<uint16_t>(draft.payload.length);
  descriptor.traits = static_cast<uint8_t>(draft.traits);
  descriptor.lanes = task.lanes;
  descriptor.is_together = (draft.traits & kIsCohort) != 0 || (task.lanes & (task.lanes - 1)) != 0;
  descriptor.block_id_at = static_cast<uint16_t>(draft.payload.block_id_at);
  if (task.clusters == nullptr) return;
  descriptor.cluster = task.clusters[block];
  descriptor.group = run_.clusters.group(descriptor.cluster);
  run_.clusters.submitted(descriptor.cluster);
}

void LiveRings::trace_submit(const Draft& draft) {
  for (uint32_t block = 0; block < draft.count; ++block) {
    pto_trace(run_.context.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SUBMIT,
              static_cast<uint64_t>(TaskId{draft.ring, draft.number + block}.value()),
              static_cast<uint64_t>(draft.task.func_id));
  }
  const RingSpace& ring = run_.space.ring(draft.ring);
  const auto used = static_cast<uint64_t>(draft.number + draft.count - ring.alive);
  pto_record(run_.context.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_RING,
             used | uint64_t{draft.ring} << 56, ring.heap.used(ring.heap_tail));
}

bool LiveRings::publish(const HeldTask& held, EdgeList& edges) {
  if (!edges_.place(held, edges)) return false;
  run_.stream.append(slot_ref(held.ring, run_.rings.ring[held.ring].slot(held.number)));
  return true;
}

bool LiveRings::allocate_cluster(uint32_t depth, CallSite at, int32_t* cluster) {
  Clusters& clusters = run_.clusters;
  *cluster = clusters.allocate(depth);
  if (*cluster != Clusters::kNone) return true;
  Blocked blocked;
  blocked.what = Resource::kCluster;
  blocked.ring = Scopes::ring_at(depth);
  blocked.depth = depth;
  blocked.needed = 1;
  blocked.file = at.file;
  blocked.line = at.line;
  if (!wait_.wait_until(blocked, [&] { return clusters.is_any_free(); })) return false;
  *cluster = clusters.allocate(depth);
  return true;
}

Blocked LiveRings::blocked_on(Resource what, const Draft& draft, uint64_t needed) const {
  Blocked blocked;
  blocked.what = what;
  blocked.ring = draft.ring;
  blocked.depth = run_.scopes.depth();
  blocked.needed = needed;
  blocked.func_id = draft.task.func_id;
  blocked.file = draft.task.file;
  blocked.line = draft.task.file != nullptr ? draft.task.line : -1;
  return blocked;
}

}  // namespace pto::ring_buffer
