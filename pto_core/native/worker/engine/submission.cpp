#include "engine/submission.hpp"

#include <algorithm>
#include <string>

#include "trace/tracer.hpp"

namespace pto::worker {
namespace {

// The first address for OUTPUT tensors of size 0. No memory has such an address.
constexpr uint64_t kKeyBit = uint64_t{1} << 63;

}  // namespace

Submitted SubmissionPart::submit(const Submission& submission) {
  run_ = submission.run;
  check_submission(core_, submission);
  if (submission.known == nullptr)
    find(submission);
  else
    take_known(*submission.known);
  if (!submission.after.empty()) find_explicit(submission.after);
  if (producers_.size() > 1) merge_producers();
  if (owners_.size() > 1) merge_owners();
  const uint64_t bytes = bytes_of(submission);
  ring().check_size(bytes);
  reserve();
  const auto address = bytes > 0 ? ring().try_reserve(bytes) : 0;
  if (!address) return blocked(bytes);
  const uint32_t index = take(bytes, bytes > 0);
  place(index, submission, *address);
  describe(index, submission);
  core_.slots.move(core_.slots[index], TaskEvent::kSubmit);
  core_.slots[index].is_unfinished = true;
  ++core_.runs[run_].unfinished;
  for (const uint32_t owner : owners_) {
    hold(make_edge(index, owner, kOwner));
    ++core_.slots[owner].owner_count;
  }
  for (const Producer& producer : producers_) link(index, producer.found, producer.why);
  enter_regions(index);
  const int64_t number = core_.slots[index].number;
  endings_.settle(index);
  return {number};
}

Submitted SubmissionPart::allocate(uint64_t bytes, uint64_t* address, uint32_t run) {
  run_ = run;
  const uint64_t slab = bytes == 0 ? 0 : rounded(bytes);
  accesses_.clear();
  producers_.clear();
  owners_.clear();
  ring().check_size(slab);
  Access& access = accesses_.add(Tag::kOutput, true);
  reserve();
  const auto begin = slab > 0 ? ring().try_reserve(slab) : 0;
  if (!begin) return blocked(slab);
  const uint32_t index = take(slab, true);
  *address = slab > 0 ? *begin : next_key();
  locate(access.region, {*address, bytes, nullptr, Tag::kOutput});
  access.owner = slab > 0 ? index : kNoSlot;
  core_.slots.move(core_.slots[index], TaskEvent::kAllocate);
  enter_regions(index);
  return {core_.slots[index].number};
}

void SubmissionPart::find(const Submission& submission) {
  accesses_.clear();
  producers_.clear();
  owners_.clear();
  for (const Member& member : submission.members) {
    for (const TensorAccess& tensor : member.tensors) {
      if (tensor.tag == Tag::kNoDep) continue;
      Access& access = accesses_.add(tensor.tag, is_allocated(tensor));
      if (access.is_fresh) continue;
      locate(access.region, tensor);
      if (tensor.child == kNone) access.owner = owner_of(access.region);
      if (access.owner != kNoSlot) {
        access.region.tag = core_.slots[access.owner].number;
        owners_.push_back(access.owner);
      }
      if (reads(tensor.tag)) find_overlaps(access, kData);
      const bool waits_for_readers = tensor.tag == Tag::kOutput || tensor.tag == Tag::kInout;
      if (core_.hazards == Hazards::kFull && waits_for_readers) {
        if (!reads(tensor.tag)) find_overlaps(access, kOrders);
        core_.regions.find_readers(access, [&](const Found& found, bool is_certain) {
          producers_.push_back({found, static_cast<uint8_t>(is_certain ? kCertain : kOrders)});
        });
      }
    }
  }
}

void SubmissionPart::take_known(const Known& known) {
  accesses_.clear();
  producers_.clear();
  owners_.clear();
  const int64_t number = core_.slots.next_number();
  const auto earlier = [&](uint32_t distance) {
    if (distance >= 1 && number - distance >= core_.first_task) return number - distance;
    refuse_usage("task " + std::to_string(number) + " cannot wait for the task " +
                 std::to_string(distance) +
                 " submits before it, which does not belong to this run");
  };
  for (const Known::Producer& each : known.producers) {
    producers_.push_back(producer_of(earlier(each.distance), each.why));
  }
  for (const uint32_t distance : known.owners) {
    const uint32_t slot = core_.slots.numbers().slot(earlier(distance));
    const bool owns = slot != kNoSlot && core_.slots[slot].slab_ring != kNoRing;
    if (!owns || !core_.slots[slot].is_in_scope) {
      refuse_usage("task " + std::to_string(number) + " names a buffer of task " +
                   std::to_string(number - distance) + ", which has no buffer in an open scope");
    }
    owners_.push_back(slot);
  }
}

void SubmissionPart::find_explicit(std::span<const int64_t> producers) {
  const int64_t number = core_.slots.next_number();
  for (const int64_t producer : producers) {
    if (producer < core_.first_task || producer >= number) {
      refuse_usage("task " + std::to_string(producer) +
                   " is not an earlier task of this run, so task " + std::to_string(number) +
                   " cannot wait for it");
    }
    producers_.push_back(producer_of(producer, kExplicit | kCertain));
  }
}

SubmissionPart::Producer SubmissionPart::producer_of(int64_t number, uint8_t why) {
  int64_t root = kNotPoisoned;
  if (!core_.roots.empty()) {
    const auto found = core_.roots.find(number);
    if (found != core_.roots.end()) root = found->second;
  }
  return {{number, core_.slots.numbers().slot(number), root}, why};
}

void SubmissionPart::report_found(std::vector<std::pair<int64_t, uint8_t>>* producers,
                                  std::vector<int64_t>* owners) const {
  for (const Producer& each : producers_) producers->emplace_back(each.found.number, each.why);
  for (const uint32_t owner : owners_) owners->push_back(core_.slots[owner].number);
}

void SubmissionPart::find_overlaps(Access& access, uint8_t why) {
  core_.regions.find_writers(access, [&](const Found& found, bool is_certain) {
    producers_.push_back({found, static_cast<uint8_t>(is_certain ? why | kCertain : why)});
  });
}

uint32_t SubmissionPart::owner_of(const engine::Region& region) {
  if (region.is_key() || region.end <= core_.heap.begin || region.begin >= core_.heap.end) {
    return kNoSlot;
  }
  for (const Heap& ring : core_.rings) {
    if (!ring.contains(region.begin, region.end)) continue;
    const uint32_t owner = ring.owner(region.begin, region.end);
    if (owner != kNoSlot && core_.slots[owner].is_in_scope) return owner;
    refuse_usage("the " + std::to_string(region.end - region.begin) + " bytes at " +
                 hex(region.begin) + " of heap ring " + std::to_string(ring.number()) +
                 " belong to no task of an open scope; name a buffer only before the scope that "
                 "allocated it ends");
  }
  return kNoSlot;
}

// Keep each producer once, in ascending order, with all reasons why the task waits for it.
void SubmissionPart::merge_producers() {
  const auto is_before = [](const Producer& one, const Producer& other) {
    return one.found.number < other.found.number;
  };
  std::sort(producers_.begin(), producers_.end(), is_before);
  size_t last = 0;
  for (size_t at = 1; at < producers_.size(); ++at) {
    if (producers_[at].found.number == producers_[last].found.number) {
      producers_[last].why |= producers_[at].why;
    } else {
      producers_[++last] = producers_[at];
    }
  }
  producers_.resize(last + 1);
}

void SubmissionPart::merge_owners() {
  std::sort(owners_.begin(), owners_.end());
  owners_.erase(std::unique(owners_.begin(), owners_.end()), owners_.end());
}

uint64_t SubmissionPart::bytes_of(const Submission& submission) {
  uint64_t bytes = 0;
  for (const Member& member : submission.members) {
    for (const TensorAccess& tensor : member.tensors) {
      const bool takes = is_allocated(tensor) && tensor.bytes > 0;
      if (takes && __builtin_add_overflow(bytes, rounded(tensor.bytes), &bytes)) {
        bytes = ~uint64_t{0} / kSlabBytes * kSlabBytes;
      }
    }
  }
  return bytes;
}

void SubmissionPart::place(uint32_t index, const Submission& submission, uint64_t address) {
  uint32_t at = 0;
  for (const Member& member : submission.members) {
    for (TensorAccess& tensor : member.tensors) {
      if (tensor.tag == Tag::kNoDep) continue;
      Access* access = submission.known == nullptr ? &accesses_[at++] : nullptr;
      if (!is_allocated(tensor)) continue;
      tensor.address = tensor.bytes > 0 ? address : next_key();
      if (tensor.bytes > 0) address += rounded(tensor.bytes);
      if (access == nullptr) continue;
      if (tensor.bytes > 0) access->owner = index;
      locate(access->region, tensor);
    }
  }
}

uint64_t SubmissionPart::next_key() {
  return kKeyBit | core_.key_count++;
}

Submitted SubmissionPart::blocked(uint64_t bytes) {
  const Heap& full = ring();
  return {kNone, full.number(), bytes, full.used(), full.size()};
}

void SubmissionPart::reserve() {
  core_.slots.reserve();
  core_.edges.reserve(producers_.size() + owners_.size());
  if (!accesses_.empty()) core_.regions.reserve(accesses_.size());
}

// Take a slot, and a slab if `bytes` is not 0. `is_kept`: the scope keeps the task until it ends.
uint32_t SubmissionPart::take(uint64_t bytes, bool is_kept) {
  const uint32_t index = core_.slots.take();
  Slot& slot = core_.slots[index];
  if (bytes > 0) {
    slot.slab = ring().commit(index);
    slot.slab_ring = static_cast<uint8_t>(ring().number());
    if (core_.tracer) core_.trace_ring(slot.slab_ring);
  }
  EngineRun& run = core_.runs[run_];
  ++run.tasks;
  slot.run = static_cast<uint8_t>(run_);
  if (!is_kept) return index;
  slot.is_in_scope = true;
  ScopeTasks& scope = run.scopes.back();
  (scope.first == kNoSlot ? scope.first : core_.slots[scope.last].scope_next) = index;
  scope.last = index;
  return index;
}

void SubmissionPart::describe(uint32_t index, const Submission& submission) {
  Slot& slot = core_.slots[index];
  slot.kind = static_cast<uint8_t>(submission.kind);
  slot.members = static_cast<uint16_t>(submission.members.size());
  slot.is_pinned = !submission.pins.empty() && !submission.is_hint;
  slot.attempts = submission.retries;
  slot.has_retries = submission.retries > 0;
  if (slot.members > 1) {
    slot.pin = core_.members.take(slot.members);
    for (uint32_t member = 0; member < slot.members; ++member) {
      const int32_t pin =
          submission.pins.empty() ? static_cast<int32_t>(kNone) : submission.pins[member];
      core_.group(slot)[member] = {pin, static_cast<int32_t>(kNone), 0};
    }
  } else if (!submission.pins.empty()) {
    slot.pin = submission.pins[0];
  }
  if (!slot.has_retries) return;
  for (const Member& member : submission.members) {
    for (const TensorAccess& tensor : member.tensors) {
      slot.keeps_regions |= tensor.tag == Tag::kInout && tensor.bytes > 0;
    }
  }
}

// Connect the task with a producer. Depending on the state of the producer, the task waits for it,
// is poisoned, or keeps it alive.
void SubmissionPart::link(uint32_t index, const Found& producer, uint8_t why) {
  Slot& slot = core_.slots[index];
  if (producer.root != kNotPoisoned && poisons(why)) {
    slot.poison = std::min(slot.poison, producer.root);
  }
  if (producer.slot == kNoSlot) return;
  core_.conservative_edges += (why & kCertain) == 0;
  Slot& other = core_.slots[producer.slot];
  other.consumer_count += (why & kData) != 0;
  if (other.is_unfinished) {
    wait_for(index, producer.slot, why);
  } else if ((why & kData) != 0) {
    hold(make_edge(index, producer.slot, why));
  }
}

void SubmissionPart::wait_for(uint32_t index, uint32_t producer, uint8_t why) {
  Slot& slot = core_.slots[index];
  Slot& other = core_.slots[producer];
  const uint32_t edge = make_edge(index, producer, why);
  core_.edges[edge].is_waited_for = true;
  (other.consumers == kNoEdge ? other.consumers : core_.edges[other.last_consumer].next_consumer) =
      edge;
  other.last_consumer = edge;
  ++slot.unfinished;
  slot.unfinished_sum ^= producer;
  slot.poisoning += poisons(why);
  if (core_.tracer && core_.tracer->records(PTO_TRACE_EDGES))
    core_.tracer->add(kOrchestratorTrack, PTO_TRACE_EDGE, static_cast<uint64_t>(other.number),
                      static_cast<uint64_t>(slot.number));
  if ((why & kData) != 0) hold(edge);
}

void SubmissionPart::hold(uint32_t edge) {
  Edge& held = core_.edges[edge];
  Slot& slot = core_.slots[held.consumer];
  held.next_hold = slot.holds;
  slot.holds = edge;
}

uint32_t SubmissionPart::make_edge(uint32_t consumer, uint32_t producer, uint8_t why) {
  const uint32_t edge = core_.edges.take();
  core_.edges[edge] = {consumer, producer, kNoEdge, kNoEdge, why, false};
  return edge;
}

// Insert readers before writers, because the writes of a task supersede its own reads.
void SubmissionPart::enter_regions(uint32_t index) {
  if (core_.hazards == Hazards::kFull) {
    for (Access& access : accesses_) {
      if (access.tag == Tag::kInput) core_.regions.insert_reader(access, index);
    }
  }
  for (Access& access : accesses_) {
    if (writes(access.tag)) core_.regions.insert_writer(access, index);
  }
}

// Checks of a submit. A check throws if it finds an error, and changes nothing.

namespace {

constexpr const char* kKindNames[] = {"NEXT_LEVEL", "SUB"};
constexpr const char* kMore[] = {
    "make the Worker with device_ids, or add some with add_worker",
    "make the Worker with num_sub_workers",
};

std::string list_of(std::span<const int32_t> numbers) {
  std::string text = "[";
  for (const int32_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

void check_pins(const EngineState& core, const Submission& submission) {
  const std::span<const int32_t> pins = submission.pins;
  if (pins.empty()) return;
  if (pins.size() != submission.members.size()) {
    refuse_usage(std::to_string(pins.size()) + " workers were passed for " +
                 std::to_string(submission.members.size()) + " members; pass one for each member");
  }
  for (size_t at = 0; at < pins.size(); ++at) {
    const int32_t pin = pins[at];
    const bool exists = pin >= 0 && static_cast<uint32_t>(pin) < core.children.size();
    if (exists && core.children[pin].kind == submission.kind) continue;
    std::vector<int32_t> there;
    const uint8_t kind = static_cast<uint8_t>(submission.kind);
    for (const EngineChild* child : core.children.of_kind(kind)) there.push_back(child->number);
    refuse_usage("worker " + std::to_string(pin) + " is not a " + kKindNames[kind] +
                 " child; use one of " + list_of(there));
  }
  for (size_t at = 1; at < pins.size(); ++at) {
    if (std::find(pins.begin(), pins.begin() + static_cast<ptrdiff_t>(at), pins[at]) !=
        pins.begin() + static_cast<ptrdiff_t>(at)) {
      refuse_usage("workers " + list_of(pins) +
                   " contain a child twice; the members of a group need different children");
    }
  }
}

std::string tuple_of(const uint64_t* values, uint32_t dims) {
  std::string text = "(";
  for (uint32_t dim = 0; dim < dims; ++dim) {
    text += (dim > 0 ? ", " : "") + std::to_string(values[dim]);
  }
  return text + (dims == 1 ? ",)" : ")");
}

std::string text_of_box(const Box& box) {
  const uint32_t dims = std::min(box.dims, kMaxDims);
  return "Box(base=" + std::to_string(box.base) +
         ", element_bytes=" + std::to_string(box.element_bytes) +
         ", raw=" + tuple_of(box.raw, dims) + ", low=" + tuple_of(box.low, dims) +
         ", extent=" + tuple_of(box.extent, dims) + ")";
}

// Return whether the box lies inside a valid buffer.
bool fits(const Box& box) {
  if (box.dims < 1 || box.dims > kMaxDims || box.element_bytes < 1) return false;
  uint64_t bytes = box.element_bytes;
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    const bool lies_in = box.extent[dim] >= 1 && box.extent[dim] <= box.raw[dim] &&
                         box.low[dim] <= box.raw[dim] - box.extent[dim];
    if (!lies_in || __builtin_mul_overflow(bytes, box.raw[dim], &bytes)) return false;
  }
  return bytes <= ~box.base;
}

void check_box(const TensorAccess& tensor) {
  if (fits(*tensor.box)) return;
  refuse_usage(text_of_box(*tensor.box) + " is not a view of its buffer");
}

// Child memory is located by addresses with additional bits set (see locate()), so addresses must
// not use these bits.
void check_child_memory(const EngineState& core, const TensorAccess& tensor) {
  if (tensor.child < 0 || static_cast<uint32_t>(tensor.child) >= core.children.size()) {
    refuse_usage("memory of child " + std::to_string(tensor.child) +
                 ", which does not exist; use 0 to " + std::to_string(core.children.size() - 1));
  }
  if (is_allocated(tensor)) refuse_usage("an OUTPUT tensor of a child's memory without an address");
  uint64_t end = tensor.address + tensor.bytes;
  if (tensor.box != nullptr) {
    end = tensor.box->element_bytes;
    for (uint32_t dim = 0; dim < tensor.box->dims; ++dim) end *= tensor.box->raw[dim];
    end += tensor.box->base;
  }
  if (end > kChildMemoryEnd) {
    refuse_usage("memory of child " + std::to_string(tensor.child) + " that ends at " + hex(end) +
                 "; its addresses end at " + hex(kChildMemoryEnd));
  }
}

void check_tensor(const EngineState& core, const TensorAccess& tensor) {
  if (tensor.bytes > ~tensor.address) {
    refuse_usage(std::to_string(tensor.bytes) + " bytes at " + hex(tensor.address) +
                 " are not a tensor");
  }
  if (tensor.box != nullptr) check_box(tensor);
  if (tensor.child != kNone) check_child_memory(core, tensor);
  if (tensor.address != 0) return;
  if (tensor.tag != Tag::kOutput && tensor.tag != Tag::kNoDep) {
    refuse_usage(std::string("an ") + engine::kTagNames[static_cast<uint8_t>(tensor.tag)] +
                 " tensor without an address; only OUTPUT is allocated");
  }
  if (tensor.box != nullptr) refuse_usage("a view of a buffer that is not allocated yet");
}

// Return a value that is added to the addresses of one child's memory, so that they differ from the
// addresses of host memory and of other children.
constexpr uint64_t window_of(int32_t child) {
  if (child == kNone) return 0;
  return uint64_t{1} << 61 | static_cast<uint64_t>(child) * kChildMemoryEnd;
}

}  // namespace

void check_submission(const EngineState& core, const Submission& submission) {
  const size_t count = submission.members.size();
  const uint8_t kind = static_cast<uint8_t>(submission.kind);
  const size_t children = core.children.of_kind(kind).size();
  if (count < 1) refuse_usage("a task without members; pass arguments for at least one member");
  if (children == 0) {
    refuse_usage(std::string("a task for ") + kKindNames[kind] + " children, but there are none; " +
                 kMore[kind]);
  }
  if (count > children) {
    refuse_usage("a group of " + std::to_string(count) + " members for " +
                 std::to_string(children) + " " + kKindNames[kind] +
                 " children; use a smaller group or add children");
  }
  if (submission.retries < 0) {
    refuse_usage("retries " + std::to_string(submission.retries) + ", timeout " +
                 std::to_string(submission.timeout_ms) + " ms: pass 0 or more");
  }
  check_pins(core, submission);
  for (const Member& member : submission.members) {
    for (const TensorAccess& tensor : member.tensors) check_tensor(core, tensor);
  }
}

void locate(engine::Region& region, const TensorAccess& tensor) {
  const uint64_t window = window_of(tensor.child);
  if (tensor.bytes == 0) {
    region.begin = region.end = window + tensor.address;
    return;
  }
  if (tensor.box == nullptr) return region.set_range(window + tensor.address, tensor.bytes);
  const Box& box = *tensor.box;
  uint64_t first = box.base;
  uint64_t bytes = box.element_bytes;
  uint64_t stride = box.element_bytes;
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    first += box.low[dim] * stride;
    bytes *= box.extent[dim];
    stride *= box.raw[dim];
  }
  if (tensor.address != first || tensor.bytes != bytes) {
    refuse_usage("a tensor of " + std::to_string(tensor.bytes) + " bytes at " +
                 hex(tensor.address) + " has a box of " + std::to_string(bytes) + " bytes at " +
                 hex(first));
  }
  engine::RegionBuilder builder(region, window + first, box.element_bytes, kNone);
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    builder.add(box.raw[dim], box.low[dim], box.extent[dim]);
  }
  builder.finish();
}

}  // namespace pto::worker
