#include "driver/capture.hpp"

#include <algorithm>
#include <string>

#include "arguments/blob.hpp"

namespace pto::hierarchy {
namespace {

constexpr uint64_t kRingBytes = uint64_t{1} << 46;

// Return a configuration with the same children and with very large rings. Their addresses have bit
// 62 set, so they belong to no memory.
Configuration endless(Configuration configuration, uint64_t number) {
  for (uint64_t ring = 0; ring < kRings; ++ring) {
    configuration.rings[ring] = {
        uint64_t{1} << 62 | (number & 0xFFF) << 49 | ring * (kRingBytes + kSlabBytes), kRingBytes};
  }
  return configuration;
}

bool overlap(const AddressRange& one, const AddressRange& other) {
  return one.begin < other.end && other.begin < one.end;
}

}  // namespace

AddressRange range_of(const pto_tensor& tensor) {
  uint64_t bytes = 0;
  count_bytes(tensor, &bytes);
  return {tensor.data, tensor.data + std::max<uint64_t>(bytes, 1)};
}

Capture::Capture(const Configuration& configuration, Hazards hazards, uint64_t number,
                 std::span<const pto_tensor> arguments, std::span<const uint64_t> scalars)
    : configuration_(configuration),
      engine_(std::make_unique<Engine>(endless(configuration, number))),
      graph_(std::make_shared<CapturedGraph>()) {
  graph_->hazards = hazards;
  graph_->states_use = configuration.states_use();
  graph_->arguments.assign(arguments.begin(), arguments.end());
  graph_->uses.resize(arguments.size());
  graph_->scalars.assign(scalars.begin(), scalars.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].child_memory) {
      refuse_usage(
          "tensor " + std::to_string(i) +
          " of the arguments is memory of a child; use such memory only inside the captured "
          "function");
    }
    if (arguments[i].data == 0)
      refuse_usage("tensor " + std::to_string(i) +
                   " of the arguments has no memory; pass a tensor that "
                   "has memory");
    const AddressRange range = range_of(arguments[i]);
    for (size_t other = 0; other < i; ++other) {
      if (!overlap(range, range_of(arguments[other]))) continue;
      refuse_usage(
          "tensors " + std::to_string(other) + " and " + std::to_string(i) +
          " of the arguments overlap, so a replay cannot tell which of them a task uses; capture "
          "with arrays that do not overlap");
    }
    add_base(range.begin, range.end - range.begin);
  }
  engine_->run_begin(hazards, out_);
}

uint32_t Capture::add_base(uint64_t address, uint64_t bytes) {
  const auto number = static_cast<uint32_t>(graph_->bases.size());
  bases_[address] = {address + std::max<uint64_t>(bytes, 1), number};
  graph_->bases.push_back(address);
  return number;
}

// Return the base that contains the address, or null. Bases do not overlap.
const std::pair<const uint64_t, Capture::Base>* Capture::base_at(uint64_t address) const {
  auto found = bases_.upper_bound(address);
  if (found == bases_.begin()) return nullptr;
  --found;
  return address < found->second.end ? &*found : nullptr;
}

Capture::Origin Capture::origin_of(const Tensor& key) const {
  const uint64_t end = key.address + std::max<uint64_t>(key.bytes, 1);
  const auto* base = base_at(key.address);
  if (base && end <= base->second.end) return {base->second.number, key.address - base->first};
  const auto next = bases_.lower_bound(key.address);
  if (base || (next != bases_.end() && next->first < end)) {
    refuse_usage(
        "a tensor of " + std::to_string(key.bytes) +
        " bytes is only partly inside an argument or an allocation of the graph; in a captured "
        "graph each tensor must be inside one of them or outside of all");
  }
  if (is_captured(key.address)) {
    refuse_usage(
        "the tensor belongs to another captured graph; allocate a tensor in this graph's function");
  }
  for (const RingConfiguration& ring : configuration_.rings) {
    if (!overlap({key.address, end}, {ring.address, ring.address + ring.size})) continue;
    refuse_usage(
        "the tensor belongs to an earlier run; allocate a tensor in the captured function");
  }
  return {kNoBase, 0};
}

// The constructor has checked that no argument begins inside another one.
void Capture::check(const Call& call) const {
  for (const MemberCall& member : call.members) {
    for (const Tensor& key : member.keys)
      if (key.child == kNone && !is_allocated(key) && key.address != 0) origin_of(key);
  }
}

int64_t Capture::submit(const Call& call) {
  check(call);
  CapturedTask task{};
  task.kind = call.kind;
  task.is_hint = call.is_hint;
  task.has_arguments = call.has_arguments;
  task.members = static_cast<uint16_t>(call.members.size());
  task.retries = call.retries;
  task.callable = call.callable;
  task.config = call.config;
  task.timeout_ms = call.timeout_ms;
  task.place = call.place;
  task.first_key = static_cast<uint32_t>(graph_->keys.size());
  for (size_t i = 0; i < call.members.size(); ++i) {
    for (const Tensor& key : call.members[i].keys)
      graph_->keys.push_back({key, static_cast<uint32_t>(i), kNoBase, 0, 0});
  }
  int64_t number = kNone;
  try {
    number = engine_->submit(submission_of(call, members_), out_).task;
  } catch (...) {
    graph_->keys.resize(task.first_key);
    throw;
  }
  if (number == kNone) {
    graph_->keys.resize(task.first_key);
    refuse_usage("a captured graph allocates more than 64 TiB; make it smaller");
  }
  task.keys = static_cast<uint32_t>(graph_->keys.size()) - task.first_key;
  keep_keys(call, &task);
  keep_known(number, &task);
  task.first_pin = static_cast<uint32_t>(graph_->pins.size());
  task.pins = static_cast<uint32_t>(call.pins.size());
  graph_->pins.insert(graph_->pins.end(), call.pins.begin(), call.pins.end());
  graph_->steps.push_back(
      {CapturedStep::What::kSubmit, static_cast<uint32_t>(graph_->tasks.size()), kNoBase, 0});
  graph_->tasks.push_back(task);
  return number;
}

// Complete the keys that were collected before the submit with their bases and places, and store
// the blobs.
void Capture::keep_keys(const Call& call, CapturedTask* task) {
  task->blobs = graph_->blob_storage.size() * sizeof(uint64_t);
  CapturedKey* key = graph_->keys.data() + task->first_key;
  for (const MemberCall& member : call.members) {
    const uint64_t blob = graph_->blob_storage.size() * sizeof(uint64_t);
    graph_->blob_storage.resize(graph_->blob_storage.size() +
                                blob_bytes(member.tensors.size(), member.scalars.size()) / 8);
    encode_blob({member.tensors, member.scalars}, graph_->blobs() + blob);
    if (graph_->states_use) keep_uses(member);
    for (size_t i = 0; i < member.keys.size(); ++i, ++key) {
      key->place = blob + kBlobHeadBytes + i * sizeof(pto_tensor) + offsetof(pto_tensor, data);
      const bool is_new = is_allocated(key->tensor);
      if (is_new) {
        key->base = add_base(member.keys[i].address, key->tensor.bytes);
      } else if (key->tensor.child != kNone) {
        graph_->on_children.push_back({key->tensor.child, key->tensor.address, key->tensor.bytes});
      } else if (key->tensor.address != 0) {
        const Origin origin = origin_of(key->tensor);
        key->base = origin.base;
        key->offset = origin.offset;
      }
      const bool is_saved = call.retries > 0 && key->tensor.tag == Tag::kInout;
      task->needs_keys |= is_new || is_saved;
      if (key->base < graph_->uses.size()) {
        graph_->uses[key->base].is_written |= writes(key->tensor.tag);
        graph_->uses[key->base].is_saved |= is_saved;
      }
      if (key->base != kNoBase) {
        patches_.push_back({key->base, {key->place, key->offset}});
        *reinterpret_cast<uint64_t*>(graph_->blobs() + key->place) = member.keys[i].address;
      } else if (key->tensor.address != 0 && key->tensor.child == kNone) {
        const uint64_t begin = key->tensor.address;
        graph_->constants.push_back({begin, begin + std::max<uint64_t>(key->tensor.bytes, 1)});
      }
    }
  }
}

// Store the uses of the member's tensors after its blob.
void Capture::keep_uses(const MemberCall& member) {
  std::vector<uint64_t>& storage = graph_->blob_storage;
  const size_t at = storage.size() * sizeof(uint64_t);
  storage.resize(storage.size() + use_bytes(member.keys.size()) / sizeof(uint64_t));
  for (size_t i = 0; i < member.keys.size(); ++i) {
    graph_->blobs()[at + i] =
        use_of(member.keys[i].tag, member.tensors[i].data != member.keys[i].address);
  }
}

void Capture::keep_known(int64_t number, CapturedTask* task) {
  std::vector<std::pair<int64_t, uint8_t>> producers;
  std::vector<int64_t> owners;
  engine_->report_found(&producers, &owners);
  task->first_producer = static_cast<uint32_t>(graph_->producers.size());
  task->producers = static_cast<uint32_t>(producers.size());
  for (const auto& [producer, why] : producers)
    graph_->producers.push_back({static_cast<uint32_t>(number - producer), why});
  task->first_owner = static_cast<uint32_t>(graph_->owners.size());
  task->owners = static_cast<uint32_t>(owners.size());
  for (const int64_t owner : owners)
    graph_->owners.push_back(static_cast<uint32_t>(number - owner));
}

int64_t Capture::allocate(uint64_t bytes, uint64_t* address) {
  const Submitted answer = engine_->allocate(bytes, address, out_);
  if (answer.task == kNone)
    refuse_usage("a captured graph allocates more than 64 TiB; make it smaller");
  graph_->steps.push_back({CapturedStep::What::kAllocate, 0, add_base(*address, bytes), bytes});
  return answer.task;
}

void Capture::scope_begin() {
  engine_->scope_begin();
  depth_ += 1;
  graph_->steps.push_back({CapturedStep::What::kScopeBegin, 0, kNoBase, 0});
}

void Capture::scope_end() {
  engine_->scope_end(out_);
  out_.clear();
  depth_ -= 1;
  graph_->steps.push_back({CapturedStep::What::kScopeEnd, 0, kNoBase, 0});
}

std::shared_ptr<CapturedGraph> Capture::finish() {
  if (depth_ > 0)
    refuse_usage("the captured function returned with " + std::to_string(depth_) + " scopes open");
  sort_patches();
  merge_constants();
  std::vector<ChildRange>& on_children = graph_->on_children;
  std::sort(on_children.begin(), on_children.end());
  on_children.erase(std::unique(on_children.begin(), on_children.end()), on_children.end());
  return std::move(graph_);
}

void Capture::sort_patches() {
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  graph_->first_patch.assign(graph_->bases.size() + 1, 0);
  for (const auto& [base, patch] : patches_) {
    graph_->first_patch[base + 1] += 1;
    graph_->patches.push_back(patch);
  }
  for (size_t base = 0; base < graph_->bases.size(); ++base)
    graph_->first_patch[base + 1] += graph_->first_patch[base];
}

void Capture::merge_constants() {
  std::vector<AddressRange>& all = graph_->constants;
  std::sort(all.begin(), all.end(),
            [](const auto& one, const auto& other) { return one.begin < other.begin; });
  size_t kept = 0;
  for (const AddressRange& range : all) {
    if (kept > 0 && range.begin <= all[kept - 1].end)
      all[kept - 1].end = std::max(all[kept - 1].end, range.end);
    else
      all[kept++] = range;
  }
  all.resize(kept);
  all.shrink_to_fit();
}

bool lie_apart(const CapturedGraph& graph, std::span<const pto_tensor> arguments) {
  std::vector<AddressRange> ranges;
  for (const pto_tensor& tensor : arguments) ranges.push_back(range_of(tensor));
  std::sort(ranges.begin(), ranges.end(),
            [](const auto& one, const auto& other) { return one.begin < other.begin; });
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0 && ranges[i].begin < ranges[i - 1].end) return false;
    const auto after = std::lower_bound(
        graph.constants.begin(), graph.constants.end(), ranges[i].begin,
        [](const AddressRange& constant, uint64_t begin) { return constant.end <= begin; });
    if (after != graph.constants.end() && after->begin < ranges[i].end) return false;
  }
  return true;
}

}  // namespace pto::hierarchy
