// A submit in its steps: sync, slots, lookup, heap and room in the map, payload, descriptor,
// map. Its edges stay in a list until it is published.
#include <cstring>
#include <new>

#include "draft.hpp"
#include "orchestrator.hpp"

namespace pto::ring_buffer {
namespace {

// What no allocator gives: the address of a key that nobody chose.
constexpr uint64_t kKeys = uint64_t{1} << 63;

}  // namespace

int64_t Orchestrator::submit(pto_tensor_task& task) {
  if (!goes_on()) return -1;
  settle();
  if (logged_ - published_ >= kPublishInterval || scheduler_.is_resting() ||
      context_.platform->deterministic != 0) {
    flush();
  }
  if (--submits_to_sync_ == 0) sync(CleanedBy::kBatch, kBatch);
  Draft draft(task, accesses_);
  return goes_on() ? put_together(draft) : -1;
}

int64_t Orchestrator::put_together(Draft& draft) {
  if (!check(draft) || !take_slots(draft)) return -1;
  find_edges(draft);
  if (!place_outputs(draft) || !make_room_for_entries(draft)) return -1;
  if (!planner_.is_planning() && !write_payload(draft)) return -1;
  write_slots(draft);
  insert_accesses(draft);
  hold_back(draft);
  return draft.id;
}

bool Orchestrator::take_slots(Draft& draft) {
  TaskRing& ring = rings_.ring[draft.ring];
  Side& side = sides_[draft.ring];
  const uint32_t count = draft.count;
  const bool is_full = ring.next + count - side.alive >= static_cast<int64_t>(ring.window);
  if ((is_full || planner_.is_planning()) && !wait_for_slots(draft)) return false;
  draft.number = ring.next;
  draft.id = TaskId{draft.ring, ring.next}.value();
  ring.next += count;
  scopes_.submitted(draft.number, count);
  RunStatistics::Ring& peaks = statistics_.ring[draft.ring];
  uint64_t alive = static_cast<uint64_t>(ring.next - side.alive);
  if (alive <= peaks.tasks_peak) return true;
  sync_ring(draft.ring, CleanedBy::kBatch);
  alive = static_cast<uint64_t>(ring.next - side.alive);
  if (alive > peaks.tasks_peak) peaks.tasks_peak = alive;
  return true;
}

bool Orchestrator::wait_for_slots(const Draft& draft) {
  TaskRing& ring = rings_.ring[draft.ring];
  if (planner_.is_planning()) return plan_slots(draft);
  if (draft.count >= ring.window) {
    ErrorFacts facts{PTO_ERROR_CAPACITY};
    facts.value = draft.count;
    facts.limit = ring.window - 1;
    return reject(draft, facts, "a block task of ", draft.count,
                  " blocks can never fit into the task window of ring ", draft.ring,
                  ", which holds ", ring.window - 1,
                  " tasks; it needs at least --set pto2.task_window=",
                  uint64_t{1} << (64 - __builtin_clzll(draft.count)));
  }
  const auto look = [&] {
    sync_ring(draft.ring, CleanedBy::kBatch);
    return ring.next + draft.count - sides_[draft.ring].alive < static_cast<int64_t>(ring.window);
  };
  if (look() || wait_until(blocked_on(Resource::kWindow, draft, draft.count), look)) return true;
  return planner_.is_planning() && plan_slots(draft);
}

bool Orchestrator::plan_slots(const Draft& draft) {
  is_stopped_ |= !planner_.make_room(draft.ring, draft.count);
  return !is_stopped_;
}

// The lookup of each parameter, in their order.
void Orchestrator::find_edges(Draft& draft) {
  edges_.clear();
  RunStatistics::Edges& counters = statistics_.edges;
  Access* access = draft.accesses;
  for (uint32_t index = 0; index < draft.task.num_params; ++index) {
    const uint32_t tag = draft.task.params[index].tag;
    if (tag >= PTO_TAG_NO_DEP) continue;
    const Access& here = *access++;
    if (draft.is_fresh(index)) continue;
    if (here.owner != kNoTask) {
      const TaskId owner = TaskId::of(here.owner);
      const SlotRef holder = slot_ref(owner.ring, rings_.ring[owner.ring].slot(owner.number));
      counters.owner += edges_.add(holder, kHolds) != 0;
    }
    if (tag == PTO_TAG_INPUT || tag == PTO_TAG_INOUT) {
      find_writers(here, kOrders | kHolds, counters.raw);
    } else if (is_full_ && tag == PTO_TAG_OUTPUT) {
      find_writers(here, kOrders, counters.waw);
    }
    if (is_full_ && (tag == PTO_TAG_INOUT || tag == PTO_TAG_OUTPUT)) find_readers(here);
  }
}

void Orchestrator::find_writers(const Access& access, uint32_t kind, uint64_t& counter) {
  map_.find_writers(access, [&](int64_t task, bool is_conservative) {
    const TaskId producer = TaskId::of(task);
    const SlotRef writer =
        slot_ref(producer.ring, rings_.ring[producer.ring].slot(producer.number));
    counter += edges_.add(writer, is_conservative ? kind | kLabelled : kind) & kOrders;
  });
}

void Orchestrator::find_readers(const Access& access) {
  map_.find_readers(access, [&](int64_t task, bool is_conservative) {
    const TaskId reader = TaskId::of(task);
    const SlotRef slot = slot_ref(reader.ring, rings_.ring[reader.ring].slot(reader.number));
    const uint32_t kind = is_conservative ? kOrders | kLabelled : uint32_t{kOrders};
    statistics_.edges.war += edges_.add(slot, kind) & kOrders;
  });
}

bool Orchestrator::place_outputs(Draft& draft) {
  Side& side = sides_[draft.ring];
  draft.heap_begin = side.heap.head();
  if (draft.fresh != 0) {
    uint64_t address = 0;
    if (draft.output_bytes != 0 && !reserve_outputs(draft, &address)) return false;
    const uint32_t gaps = planner_.is_planning() ? 0 : heap_gaps_;
    Access* access = draft.accesses;
    for (uint32_t index = 0; index < draft.task.num_params; ++index) {
      const pto_param& param = draft.task.params[index];
      if (param.tag >= PTO_TAG_NO_DEP) continue;
      Access& here = *access++;
      if (!draft.is_fresh(index)) continue;
      pto_tensor_data& tensor = *param.value.tensor;
      const uint64_t bytes = tensor.buffer.size;
      if (is_key(tensor)) {
        tensor.buffer.addr = kKeys | ++next_key_ << 10;
      } else {
        tensor.buffer.addr = address;
        tensor.owner = draft.id;
        address += History::whole_slabs(bytes) << gaps;
        if (gaps != 0 && !lend(draft, index)) return false;
      }
      new (&here) Access(TensorMap::locate(tensor));
      map_.prepare(here);
    }
  }
  draft.heap_end = side.heap.head();
  return true;
}

bool Orchestrator::reserve_outputs(Draft& draft, uint64_t* address) {
  Side& side = sides_[draft.ring];
  const uint64_t bytes = draft.output_bytes;
  HeapRing::Range range{};
  const auto look = [&] {
    sync_ring(draft.ring, CleanedBy::kBatch);
    range = side.heap.try_reserve(bytes, side.heap_tail);
    return range.fits;
  };
  if (!planner_.is_planning()) {
    if (side.heap_base == 0 && !open_heap(draft)) return false;
    if (!side.heap.can_ever_fit(bytes)) return reject_outputs(draft);
    range = side.heap.try_reserve(bytes, side.heap_tail);
    if (range.fits || look() || wait_until(blocked_on(Resource::kHeap, draft, bytes), look)) {
      *address = draft.heap_address = side.heap_base + (range.position << heap_gaps_);
      draft.heap_begin = range.begin;
      history_.reserve(draft.ring, bytes);
      const uint64_t used = side.heap.used(side.heap_tail);
      uint64_t& peak = statistics_.ring[draft.ring].heap_peak;
      if (used > peak) peak = used;
      return true;
    }
    if (!planner_.is_planning()) return false;
  }
  history_.reserve(draft.ring, bytes);
  *address = planner_.reserve_outputs(bytes);
  is_stopped_ |= *address == 0;
  return *address != 0;
}

bool Orchestrator::open_heap(const Draft& draft) {
  const pto_platform* platform = context_.platform;
  Side& side = sides_[draft.ring];
  const uint64_t bytes = side.heap.capacity();
  uint64_t base = 0;
  const pto_status status = platform->allocate_ring(platform->self, bytes, &base);
  if (status == PTO_OK) {
    side.heap_base = base;
    const uint64_t end = base + (bytes << heap_gaps_);
    const uint64_t high =
        heaps_low_ + heaps_span_ > end && heaps_span_ != 0 ? heaps_low_ + heaps_span_ : end;
    if (heaps_span_ == 0 || base < heaps_low_) heaps_low_ = base;
    heaps_span_ = high - heaps_low_;
    return true;
  }
  ErrorFacts facts{status};
  facts.value = bytes;
  return reject(draft, facts, "the device has no memory for the heap of ring ", draft.ring, ", ",
                bytes, " bytes; set heap to less");
}

bool Orchestrator::make_room_for_entries(Draft& draft) {
  if (draft.entries == 0) return true;
  if (!planner_.is_planning() && !map_.has_room(draft.entries) && !wait_for_entries(draft) &&
      !planner_.is_planning()) {
    return false;
  }
  return !planner_.is_planning() || plan_entries(draft);
}

// After what else a submit writes: by now what new outputs touch is here.
void Orchestrator::insert_accesses(Draft& draft) {
  if (draft.entries == 0) return;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < draft.task.num_params; ++index) {
    const uint32_t tag = draft.task.params[index].tag;
    if (tag >= PTO_TAG_NO_DEP) continue;
    const Access& here = *access++;
    if (tag == PTO_TAG_INPUT) {
      if (is_full_) map_.insert_reader(here, draft.id);
    } else {
      map_.insert_writer(here, draft.id, draft.is_fresh(index));
    }
  }
}

bool Orchestrator::wait_for_entries(const Draft& draft) {
  const auto look = [&] {
    sync(CleanedBy::kBackPressure, 1);
    return map_.has_room(draft.entries);
  };
  return look() || wait_until(blocked_on(Resource::kTensorMap, draft, draft.entries), look);
}

// Entries of planned tasks are inserted as all others, so that the need is exact.
bool Orchestrator::plan_entries(const Draft& draft) {
  planner_.needs_tensor_map(map_.needed(draft.entries));
  if (map_.grow_for(draft.entries)) return true;
  stop_planning();
  return false;
}

bool Orchestrator::write_payload(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  const uint32_t num_args = draft.tensors + draft.scalars;
  uint32_t offset = static_cast<uint32_t>(sizeof(pto_payload)) + 8 * num_args;
  draft.payload_length = offset + draft.tensors * static_cast<uint32_t>(sizeof(pto_tensor_data));
  draft.payload_class = Payloads::class_of(draft.payload_length);
  pto_payload* payload = payloads_.take(draft.payload_class);
  if (payload == nullptr) {
    return reject(draft, {PTO_ERROR_MEMORY}, "no memory for the payload of ", TaskName{draft.id},
                  "; free memory or use a smaller task_window");
  }
  draft.payload = payload;
  uint64_t* args = pto_payload_args(payload);
  uint64_t relative = 0;
  for (uint32_t index = 0; index < task.num_params; ++index) {
    const pto_param& param = task.params[index];
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
    args[task.num_params] = task.block_dim;
    args[task.num_params + 1] = 0;
  }
  payload->kernel = draft.kernel;
  payload->task = static_cast<uint64_t>(draft.id);
  payload->cookie = task.cookie;
  payload->func_id = task.func_id;
  payload->num_args = num_args;
  payload->relative_args = relative;
  return true;
}

void Orchestrator::write_slots(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  const TaskRing& ring = rings_.ring[draft.ring];
  TaskRecord record;
  record.heap_address = draft.heap_address;
  record.heap_begin = draft.heap_begin;
  record.heap_end = draft.heap_end;
  record.file = task.file;
  record.payload = draft.payload;
  record.line = task.line;
  record.func_id = task.func_id;
  record.first_entry = 0;
  record.payload_class = draft.payload_class;
  record.edges_end = 0;
  record.scope_depth = scopes_.depth();
  ring.record(draft.number) = record;
  if (!planner_.is_planning()) write_descriptor(draft, 0);
  if (draft.count == 1) return;
  // What a submit has goes with its head, which retires first and only when all blocks are done.
  record.heap_begin = record.heap_end;
  record.payload = nullptr;
  for (uint32_t block = 1; block < draft.count; ++block) {
    ring.record(draft.number + block) = record;
    if (!planner_.is_planning()) write_descriptor(draft, block);
  }
}

void Orchestrator::write_descriptor(const Draft& draft, uint32_t block) {
  const pto_tensor_task& task = draft.task;
  const TaskRing& ring = rings_.ring[draft.ring];
  const int64_t number = draft.number + block;
  TaskDescriptor& descriptor = ring.descriptor(number);
  descriptor.payload = draft.payload;
  descriptor.id = TaskId{draft.ring, number}.value();
  descriptor.first_edge = kNoEdge;
  descriptor.edge_count = 0;
  descriptor.cluster = descriptor.group = -1;
  descriptor.block_dim = task.block_dim;
  descriptor.block_id = block;
  descriptor.head = slot_ref(draft.ring, ring.slot(draft.number));
  descriptor.payload_length = static_cast<uint16_t>(draft.payload_length);
  descriptor.core_type = static_cast<uint8_t>(draft.core_type);
  descriptor.block_id_arg = static_cast<uint8_t>(task.num_params + 1);
  if (task.clusters == nullptr) return;
  descriptor.cluster = task.clusters[block];
  descriptor.group = clusters_.group(descriptor.cluster);
  clusters_.submitted(descriptor.cluster);
}

void Orchestrator::hold_back(const Draft& draft) {
  const pto_platform* platform = context_.platform;
  held_ = {draft.ring, draft.count, draft.number};
  last_id_ = draft.id;
  statistics_.tasks += draft.count;
  if (!platform->tracing || planner_.is_planning()) return;
  for (uint32_t block = 0; block < draft.count; ++block) {
    pto_trace(platform, PTO_TRACE_SUBMIT,
              static_cast<uint64_t>(TaskId{draft.ring, draft.number + block}.value()),
              static_cast<uint64_t>(draft.task.func_id));
  }
}

}  // namespace pto::ring_buffer
