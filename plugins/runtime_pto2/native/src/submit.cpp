#include "submit.hpp"

#include <new>

namespace pto::ring_buffer {
namespace {

// The first address for keys for which the program specified no address. No allocator returns such
// an address.
constexpr uint64_t kKeys = uint64_t{1} << 63;

}  // namespace

int64_t Submitter::submit(pto_tensor_task& task) {
  publisher_.append();
  run_.stream.announce_if_due();
  run_.space.sync_at_intervals();
  if (run_.has_failed()) return -1;
  Draft draft(task, accesses_);
  if (!checks_.check(draft) || !take_slots(draft)) return -1;
  find_edges(draft);
  if (!place_outputs(draft) || !reserve_entries(draft)) return -1;
  if (!current_.take([&](auto& rings) { return rings.write(draft); })) return -1;
  write_records(draft);
  insert_accesses(draft);
  publisher_.hold(draft);
  run_.log_if_on([&](engine::AccessLog&) { return log_submit(draft); });
  run_.statistics.tasks += draft.count;
  return draft.id;
}

bool Submitter::take_slots(Draft& draft) {
  if (!current_.take([&](auto& rings) { return rings.reserve_slots(draft); })) return false;
  TaskRing& ring = run_.rings.ring[draft.ring];
  const RingSpace& space = run_.space.ring(draft.ring);
  draft.number = ring.next;
  ring.next += draft.count;
  run_.scopes.submitted(draft.number, draft.count);
  uint64_t& peak = run_.statistics.ring[draft.ring].tasks_peak;
  uint64_t alive = static_cast<uint64_t>(ring.next - space.alive);
  if (alive <= peak) return true;
  run_.space.sync_ring(draft.ring, CleanedBy::kBatch);
  alive = static_cast<uint64_t>(ring.next - space.alive);
  if (alive > peak) peak = alive;
  return true;
}

// Find the edges of the task: look up each parameter, in order.
void Submitter::find_edges(Draft& draft) {
  EdgeList& edges = current_.edges();
  edges.clear();
  RunStatistics::Edges& counters = run_.statistics.edges;
  const pto_param* const params = draft.task.params;
  const uint32_t count = draft.task.num_params;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < count; ++index) {
    const uint32_t tag = params[index].tag;
    if (tag >= PTO_TAG_NO_DEP) continue;
    const Access& here = *access++;
    if (draft.is_fresh(index)) continue;
    if (here.owner != kNoTask) {
      counters.owner += edges.add(run_.rings.slot_of_task(here.owner), kHolds) != 0;
    }
    if (tag == PTO_TAG_INPUT || tag == PTO_TAG_INOUT) {
      find_writers(here, kOrders | kHolds, counters.raw);
    } else if (run_.is_full && tag == PTO_TAG_OUTPUT) {
      find_writers(here, kOrders, counters.waw);
    }
    if (run_.is_full && (tag == PTO_TAG_INOUT || tag == PTO_TAG_OUTPUT)) find_readers(here);
  }
}

void Submitter::find_writers(const Access& access, uint32_t kind, uint64_t& counter) {
  EdgeList& edges = current_.edges();
  const Rings& rings = run_.rings;
  run_.space.map().find_writers(access, [&](int64_t task, bool is_conservative) {
    const uint32_t labelled = is_conservative ? kind | kLabelled : kind;
    counter += edges.add(rings.slot_of_task(task), labelled) & kOrders;
  });
}

void Submitter::find_readers(const Access& access) {
  EdgeList& edges = current_.edges();
  const Rings& rings = run_.rings;
  run_.space.map().find_readers(access, [&](int64_t task, bool is_conservative) {
    const uint32_t kind = is_conservative ? kOrders | kLabelled : uint32_t{kOrders};
    run_.statistics.edges.war += edges.add(rings.slot_of_task(task), kind) & kOrders;
  });
}

bool Submitter::place_outputs(Draft& draft) {
  const HeapRing& heap = run_.space.ring(draft.ring).heap;
  draft.heap_begin = heap.head();
  if (draft.fresh != 0 && !address_outputs(draft)) return false;
  draft.heap_end = heap.head();
  return true;
}

bool Submitter::address_outputs(Draft& draft) {
  if (draft.output_bytes != 0 &&
      !current_.take([&](auto& rings) { return rings.reserve_outputs(draft); })) {
    return false;
  }
  uint64_t address = draft.heap_address;
  const pto_param* const params = draft.task.params;
  const uint32_t count = draft.task.num_params;
  Access* access = draft.accesses;
  for (uint32_t index = 0; index < count; ++index) {
    const pto_param& param = params[index];
    if (param.tag >= PTO_TAG_NO_DEP) continue;
    Access& here = *access++;
    if (!draft.is_fresh(index)) continue;
    pto_tensor_data& tensor = *param.value.tensor;
    if (is_key(tensor)) {
      tensor.buffer.addr = kKeys | ++next_key_ << 10;
    } else {
      tensor.buffer.addr = address;
      tensor.owner = draft.id;
      address += History::whole_slabs(tensor.buffer.size) << draft.gap_shift;
      if (draft.gap_shift != 0 &&
          !current_.call([&](auto& rings) { return rings.lend_output(draft, index); })) {
        return false;
      }
    }
    new (&here) Access(locate_access(tensor));
    run_.space.map().prepare(here);
  }
  return true;
}

bool Submitter::reserve_entries(const Draft& draft) {
  return draft.entries == 0 ||
         current_.take([&](auto& rings) { return rings.reserve_entries(draft); });
}

void Submitter::write_records(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  const TaskRing& ring = run_.rings.ring[draft.ring];
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
  record.scope_depth = run_.scopes.depth();
  ring.record(draft.number) = record;
  // Only the record of the first block contains the heap range and the payload, which all blocks
  // share: this record retires first, and only after all blocks have completed.
  record.heap_begin = record.heap_end;
  record.payload = nullptr;
  for (uint32_t block = 1; block < draft.count; ++block) {
    ring.record(draft.number + block) = record;
  }
}

// Insert the accesses of the task into the tensor map. This step is the last one, so that the data
// loaded by the look-ups is still in the cache.
void Submitter::insert_accesses(const Draft& draft) {
  if (draft.entries == 0) return;
  TensorMap& map = run_.space.map();
  const pto_param* const params = draft.task.params;
  const uint32_t count = draft.task.num_params;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < count; ++index) {
    const uint32_t tag = params[index].tag;
    if (tag >= PTO_TAG_NO_DEP) continue;
    const Access& here = *access++;
    if (tag == PTO_TAG_INPUT) {
      if (run_.is_full) map.insert_reader(here, draft.id);
    } else {
      map.insert_writer(here, draft.id, draft.is_fresh(index));
    }
  }
}

bool Submitter::log_submit(const Draft& draft) {
  engine::AccessLog& log = run_.log;
  const pto_tensor_task& task = draft.task;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < task.num_params; ++index) {
    const uint32_t tag = task.params[index].tag;
    if (tag == PTO_TAG_SCALAR) continue;
    pto_tensor_data tensor = *task.params[index].value.tensor;
    tensor.owner = tag == PTO_TAG_NO_DEP ? owner_of(tensor) : (access++)->owner;
    tensor.tag = static_cast<uint8_t>(tag);
    tensor.reserved[0] = static_cast<uint8_t>(index);
    if (!log.add_access(tensor)) return false;
  }
  const pto_logged_task row{draft.id,
                            task.file,
                            task.line,
                            task.func_id,
                            draft.heap_address,
                            0,
                            static_cast<int32_t>(draft.core_type),
                            task.block_dim,
                            0};
  if (!log.add_task(row)) return false;
  if (task.clusters == nullptr) return true;
  for (uint32_t block = 0; block < draft.count; ++block) {
    const int32_t group = run_.clusters.group(task.clusters[block]);
    if (!log.add_event(PTO_LOG_ON_CLUSTER, group, draft.id, task.file, task.line)) return false;
  }
  return true;
}

int64_t Submitter::owner_of(const pto_tensor_data& tensor) {
  uint32_t ring = 0;
  HeapMemory& heaps = current_.heaps();
  if (tensor.owner >= 0 || !heaps.find_ring(tensor.buffer.addr, &ring)) return tensor.owner;
  return heaps.owner_of(ring, tensor.buffer.addr);
}

}  // namespace pto::ring_buffer
