#include "submit.hpp"

#include <new>

#include "pto/engine/signature.hpp"
#include "pto/engine/tag.hpp"
#include "pto/engine/tensor_region.hpp"
#include "pto2_calls.h"

namespace pto::ring_buffer {
namespace {

constexpr uint32_t kTypes = sizeof kElementBytes;

constexpr uint32_t kMostParameters = PTO_MAX_TASK_TENSORS + PTO_MAX_TASK_SCALARS;

constexpr uint64_t kLargestOutput = uint64_t{1} << 46;

const char* name_of_tag(uint32_t tag) {
  return tag <= PTO_TAG_SCALAR ? kTagNames[tag] : "unknown tag";
}

// Compute the size of the tensor's buffer. Return false if it exceeds every possible memory.
bool buffer_bytes(const pto_tensor_data& tensor, uint64_t* bytes) {
  uint64_t product = kElementBytes[tensor.dtype];
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    if (__builtin_mul_overflow(product, tensor.raw_shapes[dim], &product)) return false;
  }
  *bytes = product;
  return product <= kLargestOutput;
}

struct Extent {
  uint64_t address;
  uint64_t bytes;
};

// Return the address of the view's first byte, and the number of bytes up to its last byte; 0 for
// an empty view.
Extent extent_of(const pto_tensor_data& tensor) {
  uint32_t dim_in_memory[PTO_MAX_DIMS] = {};
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) dim_in_memory[tensor.order[dim]] = dim;
  uint64_t stride = kElementBytes[tensor.dtype];
  Extent extent{tensor.buffer.addr + tensor.start_offset * stride, stride};
  for (uint32_t place = tensor.ndims; place-- > 0;) {
    const uint32_t dim = dim_in_memory[place];
    if (tensor.shapes[dim] == 0) return {extent.address, 0};
    extent.bytes += (tensor.shapes[dim] - 1) * stride;
    stride *= tensor.raw_shapes[dim];
  }
  return extent;
}

// Return whether the view lies in its buffer and its order of dimensions is a permutation.
inline bool is_view(const pto_tensor_data& tensor) {
  if (tensor.ndims > PTO_MAX_DIMS || tensor.dtype >= kTypes) return false;
  uint32_t seen = 0;
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    const uint64_t raw = tensor.raw_shapes[dim];
    const uint64_t offset = tensor.offsets[dim];
    if (offset > raw || tensor.shapes[dim] > raw - offset) return false;
    seen |= uint32_t{1} << (tensor.order[dim] & 31);
  }
  return seen == (uint32_t{1} << tensor.ndims) - 1;
}

bool fits(const pto_param& param, const pto_declared_argument& declared) {
  if (declared.tag == PTO_ANY) return true;
  if (param.tag == PTO_TAG_SCALAR || declared.tag == PTO_TAG_SCALAR)
    return param.tag == declared.tag && engine::is_number(param.value.scalar, declared.dtype);
  if (!engine::permits(declared.tag, param.tag)) return false;
  const pto_tensor_data* tensor = param.value.tensor;
  return tensor == nullptr || declared.dtype == PTO_ANY || tensor->dtype == declared.dtype;
}

}  // namespace

template <class... Parts>
bool SubmitChecks::reject_parameter(const Draft& draft, uint32_t index, Parts... parts) {
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = index;
  return reject(run_.context, draft, facts, "parameter ", index, " (",
                name_of_tag(draft.task.params[index].tag), ") of ", RingTaskName{draft.id},
                " (function ", draft.task.func_id, ") ", parts...);
}

bool SubmitChecks::check(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  draft.ring = Scopes::ring_at(run_.scopes.depth());
  draft.id = TaskId{draft.ring, run_.rings.ring[draft.ring].next}.value();
  if (task.block_dim != 0) {
    draft.count = task.block_dim;
    draft.scalars = task.api == PTO_API_2026_03 ? 2 : 0;
  }
  if (!check_kernel(draft)) return false;
  if (task.start == PTO_START_TOGETHER && draft.count > 1) draft.traits |= kIsCohort;
  if (task.num_dependencies != 0 && !check_dependencies(draft)) return false;
  if (task.predicate != nullptr && !check_operand(draft)) return false;
  if (task.clusters != nullptr && !check_clusters(draft)) return false;
  return task.api == PTO_API_2026_03 ? check_parameters<false>(draft)
                                     : check_parameters<true>(draft);
}

bool SubmitChecks::check_kernel(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  if (task.start == PTO_START_NEVER || task.lanes != 0) return check_lanes(draft);
  const int32_t registered = kernels_.core_type(task.func_id);
  const int32_t core_type = task.core_type >= 0 ? task.core_type : registered;
  draft.kernel = task.kernel != 0 ? task.kernel : kernels_.address(task.func_id);
  draft.traits =
      static_cast<uint32_t>(core_type) | (task.predicate != nullptr ? uint32_t{kHasPredicate} : 0);
  const bool is_type = core_type == PTO_CORE_AIC || core_type == PTO_CORE_AIV;
  if (draft.kernel != 0 && is_type && (registered < 0 || registered == core_type)) return true;
  return reject_kernel(draft);
}

// Check a task that runs no kernel, or several.
bool SubmitChecks::check_lanes(Draft& draft) {
  const pto_tensor_task& task = draft.task;
  draft.kernel = 0;
  draft.traits = (task.start == PTO_START_NEVER ? kIsDummy : kIsMixed) |
                 ((task.lanes & PTO_LANE_AIC) != 0 ? PTO_CORE_AIC : PTO_CORE_AIV) |
                 (task.predicate != nullptr ? uint32_t{kHasPredicate} : 0);
  for (uint32_t lane = 0; lane < PTO_LANES; ++lane) {
    draft.lane_kernels[lane] = 0;
    if ((task.lanes >> lane & 1) == 0) continue;
    const int32_t func_id = task.lane_func_ids[lane];
    draft.lane_kernels[lane] = kernels_.address(func_id);
    const int32_t needed = lane == 0 ? PTO_CORE_AIC : PTO_CORE_AIV;
    const int32_t registered = kernels_.core_type(func_id);
    const bool is_type = registered < 0 || registered == needed;
    if (draft.lane_kernels[lane] != 0 && is_type) continue;
    ErrorFacts facts{PTO_ERROR_USAGE};
    facts.value = static_cast<uint64_t>(static_cast<int64_t>(func_id));
    return reject(run_.context, draft, facts, RingTaskName{draft.id}, " requests function ",
                  func_id, lane == 0 ? " for an AIC core" : " for an AIV core",
                  draft.lane_kernels[lane] == 0 ? ", but no kernel is registered for it"
                                                : ", but it is registered for the other core type");
  }
  return true;
}

bool SubmitChecks::check_operand(const Draft& draft) {
  const int64_t owner = draft.task.predicate->owner;
  if (owner == kNoTask || is_scope_open(owner)) return true;
  return reject(run_.context, draft, {PTO_ERROR_USAGE}, "the operand of the predicate of ",
                RingTaskName{draft.id}, " is an output of ", RingTaskName{owner},
                ", whose scope has ended; submit both tasks in one scope");
}

bool SubmitChecks::reject_kernel(const Draft& draft) {
  if (draft.kernel != 0) return reject_core_type(draft);
  char known[128];
  Text text(known, sizeof known);
  int32_t listed = 0;
  for (int32_t id = 0; id < kernels_.end() && listed <= 8; ++id) {
    if (kernels_.address(id) == 0) continue;
    text.add(listed > 0 ? ", " : "");
    if (listed++ == 8) {
      text.add("...");
    } else {
      text.add(id);
    }
  }
  return reject(run_.context, draft, {PTO_ERROR_USAGE}, "no kernel is registered for function id ",
                draft.task.func_id, listed > 0 ? "; registered: " : "; no kernel is registered",
                static_cast<const char*>(known));
}

bool SubmitChecks::reject_core_type(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = static_cast<uint64_t>(static_cast<int64_t>(task.core_type));
  if (task.core_type != PTO_CORE_AIC && task.core_type != PTO_CORE_AIV) {
    return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ", task.func_id,
                  ") has worker type ", task.core_type, "; use 0 (AIC, cube) or 1 (AIV, vector)");
  }
  const int32_t registered = kernels_.core_type(task.func_id);
  return reject(run_.context, draft, facts, RingTaskName{draft.id}, " requests a worker of type ",
                task.core_type == PTO_CORE_AIC ? "AIC (cube)" : "AIV (vector)", ", but function ",
                task.func_id, " is registered for ",
                registered == PTO_CORE_AIC ? "AIC (cube)" : "AIV (vector)",
                "; submit it for the registered core type, or register it for the other one");
}

bool SubmitChecks::check_clusters(const Draft& draft) {
  for (uint32_t block = 0; block < draft.count; ++block) {
    const int32_t cluster = draft.task.clusters[block];
    if (current_.call([&](auto& rings) { return rings.is_cluster_allocated(cluster); })) continue;
    ErrorFacts facts{PTO_ERROR_USAGE};
    facts.value = static_cast<uint64_t>(static_cast<int64_t>(cluster));
    facts.limit = run_.clusters.blocks();
    return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ",
                  draft.task.func_id, ") requests cluster ", cluster,
                  ", which is not allocated; use a result of allocate_cluster that has not been "
                  "freed and whose scope is open");
  }
  return true;
}

bool SubmitChecks::check_dependencies(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  for (uint64_t index = 0; index < task.num_dependencies; ++index) {
    const int64_t id = task.dependencies[index].task;
    if (id >= 0 && TaskId::of(id).number < run_.rings.ring[TaskId::of(id).ring].next) continue;
    return reject(run_.context, draft, {PTO_ERROR_USAGE, draft.id, id}, RingTaskName{draft.id},
                  " (function ", task.func_id, ") has dependency ", index,
                  ", which names no task; use an id that a submit returned");
  }
  return true;
}

template <bool has_flags>
bool SubmitChecks::check_parameters(Draft& draft) {
  const pto_param* const params = draft.task.params;
  const uint32_t count = draft.task.num_params;
  if ((params == nullptr && count != 0) || count > kMostParameters) return reject_parameters(draft);
  const pto_signature* signature = kernels_.signature(draft.task.func_id);
  if (signature != nullptr && !check_signature(draft, *signature)) return false;
  for (uint32_t index = 0; index < count; ++index) {
    if (params[index].tag == PTO_TAG_SCALAR) {
      if (++draft.scalars > PTO_MAX_TASK_SCALARS) return reject_scalars(draft);
      continue;
    }
    if (++draft.tensors > PTO_MAX_TASK_TENSORS) return reject_tensors(draft);
    if (!check_tensor<has_flags>(draft, index)) return false;
  }
  return true;
}

bool SubmitChecks::check_signature(const Draft& draft, const pto_signature& signature) {
  const pto_tensor_task& task = draft.task;
  if (!engine::accepts(signature, task.num_params, draft.is_block_task() ? 2 : 0)) {
    ErrorFacts facts{PTO_ERROR_USAGE};
    facts.value = task.num_params;
    return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ", task.func_id,
                  ") has ", task.num_params, " parameters, but the signature of its kernel lists ",
                  signature.num_arguments, "; pass as many");
  }
  for (uint32_t index = 0; index < task.num_params && index < signature.num_arguments; ++index) {
    const pto_declared_argument& declared = signature.arguments[index];
    if (fits(task.params[index], declared)) continue;
    return reject_parameter(draft, index,
                            "does not fit the signature of its kernel, which declares it ",
                            static_cast<const char*>(engine::DeclaredText(declared).text),
                            "; pass the parameters in the order of the signature");
  }
  return true;
}

template <bool has_flags>
bool SubmitChecks::check_tensor(Draft& draft, uint32_t index) {
  const pto_param& param = draft.task.params[index];
  if (param.tag > PTO_TAG_SCALAR) {
    return reject_parameter(draft, index, "has tag ", param.tag, "; use the PTO_TAG_ values, 0 to ",
                            static_cast<int32_t>(PTO_TAG_SCALAR));
  }
  if (param.value.tensor == nullptr) {
    return reject_parameter(draft, index, "is a null pointer; pass a tensor");
  }
  const pto_tensor_data& tensor = *param.value.tensor;
  if (!(has_flags && draft.is_known(index)) && !is_view(tensor)) return reject_view(draft, index);
  const bool has_access = draft.has_access(param.tag);
  Access& access = draft.accesses[draft.ordering];
  draft.ordering += has_access;
  draft.entries += param.tag != PTO_TAG_NO_DEP && (run_.is_full || param.tag != PTO_TAG_INPUT);
  if (tensor.buffer.addr == 0) return check_new_output(draft, index);
  if (run_.context.platform->checking && !check_address(draft, index)) return false;
  if (!has_access) return true;
  return locate<has_flags>(draft, index, &access);
}

bool SubmitChecks::check_new_output(Draft& draft, uint32_t index) {
  const pto_param& param = draft.task.params[index];
  if (param.tag != PTO_TAG_OUTPUT) {
    return reject_parameter(
        draft, index,
        "has address 0, because no task has written it; submit it as the output of "
        "an earlier task, or pass a tensor that has memory");
  }
  pto_tensor_data& tensor = *param.value.tensor;
  uint64_t bytes = 0;
  if (!is_key(tensor) && !buffer_bytes(tensor, &bytes)) {
    return reject_parameter(draft, index, "is larger than ", kLargestOutput,
                            " bytes; check its shape");
  }
  tensor.buffer.size = bytes;
  draft.fresh |= uint64_t{1} << index;
  draft.output_bytes += History::whole_slabs(bytes);
  return true;
}

bool SubmitChecks::check_address(const Draft& draft, uint32_t index) {
  const pto_tensor_data& tensor = *draft.task.params[index].value.tensor;
  if (is_key(tensor)) return true;
  ErrorLatch blank;
  pto_error cause = *blank.error();
  const Extent extent = extent_of(tensor);
  const pto_status status = current_.call(
      [&](auto& rings) { return rings.check_range(extent.address, extent.bytes, &cause); });
  if (status == PTO_OK) return true;
  ErrorFacts facts{status};
  facts.value = tensor.buffer.addr;
  return reject(run_.context, draft, facts, "parameter ", index, " (",
                name_of_tag(draft.task.params[index].tag), ") of ", RingTaskName{draft.id},
                " (function ", draft.task.func_id, "), address ", Address{tensor.buffer.addr}, ": ",
                static_cast<const char*>(cause.message));
}

template <bool has_flags>
bool SubmitChecks::locate(const Draft& draft, uint32_t index, Access* access) {
  const pto_tensor_data& tensor = *draft.task.params[index].value.tensor;
  const uint64_t address = tensor.buffer.addr;
  TensorMap& map = run_.space.map();
  HeapMemory& heaps = current_.heaps();
  uint32_t ring = 0;
  if (tensor.owner >= 0) {
    if (has_flags && draft.is_known(index)) {
      access->owner = tensor.owner;
    } else {
      new (access) Access(locate_access(tensor));
      map.prepare(*access);
    }
    if (!is_scope_open(tensor.owner)) return reject_owner(draft, index, tensor.owner);
    return is_output_of(tensor.owner, address) || reject_other_run(draft, index);
  }
  if (!heaps.find_ring(address, &ring)) {
    if (has_flags && draft.is_known(index)) {
      access->owner = kNoTask;
    } else {
      new (access) Access(locate_access(tensor));
      map.prepare(*access);
    }
    return true;
  }
  pto_tensor_data owned = tensor;
  owned.owner = heaps.owner_of(ring, address);
  new (access) Access(locate_access(owned));
  const bool is_alive = owned.owner != kNoTask && is_scope_open(owned.owner);
  return is_alive || reject_owner(draft, index, owned.owner);
}

bool SubmitChecks::is_output_of(int64_t id, uint64_t address) {
  const TaskId task = TaskId::of(id);
  const RingTask& record = run_.rings.ring[task.ring].record(task.number);
  return current_.call([&](auto& rings) { return rings.is_output_of(record, address); });
}

// Return whether the scope of a task is open. The tasks that have been submitted in an open scope
// have numbers from the scope's first task on. Several scopes share the last ring; there, the depth
// in the task's record identifies the scope.
bool SubmitChecks::is_scope_open(int64_t id) const {
  const TaskId task = TaskId::of(id);
  const TaskRing& ring = run_.rings.ring[task.ring];
  if (task.number < run_.space.ring(task.ring).alive || task.number >= ring.next) return false;
  const uint32_t depth = task.ring < kRings - 1 ? task.ring : ring.record(task.number).scope_depth;
  if (depth >= run_.scopes.open()) return false;
  const int64_t first = run_.scopes.at(depth).first_task;
  return first != Scope::kNone && task.number >= first;
}

bool SubmitChecks::reject_parameters(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  if (task.params == nullptr) {
    return reject(run_.context, draft, {PTO_ERROR_USAGE}, RingTaskName{draft.id}, " (function ",
                  task.func_id, ") got a null pointer for ", task.num_params,
                  " parameters; pass the array that holds them");
  }
  ErrorFacts facts{PTO_ERROR_CAPACITY};
  facts.limit = kMostParameters;
  facts.code = -PTO2_ERROR_INVALID_ARGS;
  facts.value = task.num_params;
  return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ", task.func_id,
                ") has ", task.num_params, " parameters; at most ", PTO_MAX_TASK_TENSORS,
                " tensors and ", PTO_MAX_TASK_SCALARS, " scalars are possible");
}

bool SubmitChecks::reject_scalars(const Draft& draft) {
  ErrorFacts facts{PTO_ERROR_CAPACITY};
  facts.limit = PTO_MAX_TASK_SCALARS;
  facts.code = -PTO2_ERROR_INVALID_ARGS;
  facts.value = draft.scalars;
  return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ",
                draft.task.func_id, ") has more than ", PTO_MAX_TASK_SCALARS, " scalars",
                draft.is_block_task() ? ", including block_dim and block_id" : "",
                "; pass the rest in a tensor");
}

bool SubmitChecks::reject_tensors(const Draft& draft) {
  ErrorFacts facts{PTO_ERROR_CAPACITY};
  facts.limit = PTO_MAX_TASK_TENSORS;
  facts.code = -PTO2_ERROR_INVALID_ARGS;
  facts.value = draft.tensors;
  return reject(run_.context, draft, facts, RingTaskName{draft.id}, " (function ",
                draft.task.func_id, ") has more than ", PTO_MAX_TASK_TENSORS,
                " tensors; put several tensors into one buffer and pass a view, or split the task");
}

bool SubmitChecks::reject_view(const Draft& draft, uint32_t index) {
  const pto_tensor_data& tensor = *draft.task.params[index].value.tensor;
  if (tensor.ndims > PTO_MAX_DIMS) {
    return reject_parameter(draft, index, "has ", tensor.ndims, " dimensions; at most ",
                            PTO_MAX_DIMS, " are possible: reshape it");
  }
  if (tensor.dtype >= kTypes) {
    return reject_parameter(draft, index, "has data type code ", tensor.dtype, "; the largest is ",
                            kTypes - 1);
  }
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    const uint64_t raw = tensor.raw_shapes[dim];
    const uint64_t offset = tensor.offsets[dim];
    if (offset <= raw && tensor.shapes[dim] <= raw - offset) continue;
    return reject_parameter(draft, index, "exceeds its buffer: dimension ", dim,
                            " of the view is [", offset, ", ", offset + tensor.shapes[dim],
                            ") and the buffer has ", raw, "; make the view smaller");
  }
  return reject_parameter(draft, index,
                          "has an order of dimensions that is not a permutation; make views with "
                          "view, reshape and transpose");
}

bool SubmitChecks::reject_owner(const Draft& draft, uint32_t index, int64_t owner) {
  const Address address{draft.task.params[index].value.tensor->buffer.addr};
  if (owner == kNoTask) {
    return reject_parameter(draft, index, "has address ", address,
                            ", which is in a heap ring but in no live buffer; use the tensor that "
                            "the submit filled in, while its scope is open");
  }
  return reject_parameter(
      draft, index, "names the buffer at ", address, ", which ", RingTaskName{owner},
      " allocated in a scope that has ended; submit both tasks in one scope, or "
      "allocate the buffer in an outer scope");
}

// Called if the tensor belongs to an earlier run, so that the id of its owner now names another
// task.
bool SubmitChecks::reject_other_run(const Draft& draft, uint32_t index) {
  const pto_tensor_data& tensor = *draft.task.params[index].value.tensor;
  return reject_parameter(draft, index, "has address ", Address{tensor.buffer.addr},
                          ", which is not among the outputs of ", RingTaskName{tensor.owner},
                          ", its owner; use the tensor that a submit of this run filled in");
}

bool Publisher::add_dep(int64_t from, int64_t to, CallSite at) {
  if (!check_dep(from, to, at)) return false;
  const TaskId producer = TaskId::of(from);
  // A retired task has also completed, so no edge is needed.
  if (producer.number < run_.space.ring(producer.ring).alive) return true;
  const SlotRef slot = run_.rings.slot_of_task(from);
  run_.statistics.edges.explicit_ += current_.edges().add(slot, kOrders) != 0;
  return true;
}

bool Publisher::check_dep(int64_t from, int64_t to, CallSite at) {
  const ErrorFacts facts{PTO_ERROR_USAGE, to, from};
  const TaskId producer = TaskId::of(from);
  if (held_.count == 0 || to != last_id_) {
    run_.context.fail_at(
        at.file, at.line, facts, "add_dep from ", RingTaskName{from}, " to ", RingTaskName{to},
        ": the second task is not the one submitted last, or another call followed its submit; "
        "add the dependencies of a task right after its submit");
    return false;
  }
  if (from >= 0 && from != to && producer.number < run_.rings.ring[producer.ring].next) {
    return true;
  }
  run_.context.fail_at(at.file, at.line, facts, "add_dep to ", RingTaskName{to}, " from ",
                       RingTaskName{from},
                       from == to ? ", which is the same task; name another task"
                                  : ", which does not exist; use an id that a submit returned");
  return false;
}

namespace {

// The first address for keys for which the program specified no address. No allocator returns such
// an address.
constexpr uint64_t kKeys = uint64_t{1} << 63;

}  // namespace

int64_t RingSubmitter::submit(pto_tensor_task& task) {
  publisher_.append();
  run_.stream.announce_if_due();
  run_.space.sync_at_intervals();
  if (run_.has_failed()) return -1;
  Draft draft(task, accesses_);
  if (!checks_.check(draft) || !take_slots(draft)) return -1;
  if (task.api == PTO_API_2026_03) {
    find_edges(draft);
  } else {
    find_chip_edges(draft);
  }
  if (!place_outputs(draft) || !reserve_entries(draft)) return -1;
  if (!current_.take([&](auto& rings) { return rings.write(draft); })) return -1;
  write_records(draft);
  insert_accesses(draft);
  publisher_.hold(draft);
  run_.log_if_on([&](engine::AccessLog&) { return log_submit(draft); });
  run_.statistics.tasks += draft.count;
  return draft.id;
}

bool RingSubmitter::take_slots(Draft& draft) {
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
void RingSubmitter::find_edges(Draft& draft) {
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

// Find the edges of a task of 2026-08: to the owner of each buffer, by look-up, and those that the
// program states. A task that is_manual has only the last.
void RingSubmitter::find_chip_edges(Draft& draft) {
  EdgeList& edges = current_.edges();
  edges.clear();
  RunStatistics::Edges& counters = run_.statistics.edges;
  const pto_tensor_task& task = draft.task;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < task.num_params && task.is_manual == 0; ++index) {
    const pto_param& param = task.params[index];
    if (!draft.has_access(param.tag)) continue;
    const Access& here = *access++;
    if (draft.is_fresh(index)) continue;
    if (here.owner != kNoTask) {
      counters.owner += edges.add(run_.rings.slot_of_task(here.owner), kOrders | kHolds) != 0;
    }
    if ((param.is_manual & (1 | PTO2_NO_LOOK_UP)) != 0 || param.tag == PTO_TAG_NO_DEP) continue;
    if (param.tag != PTO_TAG_OUTPUT_EXISTING) {
      find_writers(here, kOrders, counters.raw);
    } else if (run_.is_full) {
      find_writers(here, kOrders, counters.waw);
    }
    if (run_.is_full && param.tag != PTO_TAG_INPUT) find_readers(here);
  }
  if (task.predicate != nullptr && task.predicate->owner != kNoTask && task.is_manual == 0) {
    edges.add(run_.rings.slot_of_task(task.predicate->owner), kHolds);
  }
  for (uint64_t index = 0; index < task.num_dependencies; ++index) {
    const pto_dependency& stated = task.dependencies[index];
    const TaskId producer = TaskId::of(stated.task);
    if (producer.number < run_.space.ring(producer.ring).alive) continue;
    const uint32_t kind = ((stated.kinds & PTO_DEPENDENCY_WAIT) != 0 ? uint32_t{kOrders} : 0) |
                          ((stated.kinds & PTO_DEPENDENCY_RETAIN) != 0 ? uint32_t{kHolds} : 0);
    const bool is_found = (stated.kinds & PTO2_DEPENDENCY_FOUND) != 0;
    (is_found ? counters.raw : counters.explicit_) +=
        edges.add(run_.rings.slot_of_task(stated.task), kind) & kOrders;
  }
}

void RingSubmitter::find_writers(const Access& access, uint32_t kind, uint64_t& counter) {
  EdgeList& edges = current_.edges();
  const Rings& rings = run_.rings;
  run_.space.map().find_writers(access, [&](int64_t task, bool is_conservative) {
    const uint32_t labelled = is_conservative ? kind | kLabelled : kind;
    counter += edges.add(rings.slot_of_task(task), labelled) & kOrders;
  });
}

void RingSubmitter::find_readers(const Access& access) {
  EdgeList& edges = current_.edges();
  const Rings& rings = run_.rings;
  run_.space.map().find_readers(access, [&](int64_t task, bool is_conservative) {
    const uint32_t kind = is_conservative ? kOrders | kLabelled : uint32_t{kOrders};
    run_.statistics.edges.war += edges.add(rings.slot_of_task(task), kind) & kOrders;
  });
}

bool RingSubmitter::place_outputs(Draft& draft) {
  const HeapRing& heap = run_.space.ring(draft.ring).heap;
  draft.heap_begin = heap.head();
  if (draft.fresh != 0 && !address_outputs(draft)) return false;
  draft.heap_end = heap.head();
  return true;
}

bool RingSubmitter::address_outputs(Draft& draft) {
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
    if (!draft.has_access(param.tag)) continue;
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
    const bool has_flags = draft.task.api != PTO_API_2026_03;
    if (has_flags && draft.is_known(index)) continue;
    if (has_flags && !is_key(tensor)) {
      new (&here) Access;  // in 2026-08, an output is a whole buffer
      here.owner = here.region.tag = draft.id;
      here.region.set_range(tensor.buffer.addr, tensor.buffer.size);
    } else {
      new (&here) Access(locate_access(tensor));
    }
    run_.space.map().prepare(here);
  }
  return true;
}

bool RingSubmitter::reserve_entries(const Draft& draft) {
  return draft.entries == 0 ||
         current_.take([&](auto& rings) { return rings.reserve_entries(draft); });
}

void RingSubmitter::write_records(const Draft& draft) {
  const pto_tensor_task& task = draft.task;
  const TaskRing& ring = run_.rings.ring[draft.ring];
  RingTask record;
  record.heap_address = draft.heap_address;
  record.heap_begin = draft.heap_begin;
  record.heap_end = draft.heap_end;
  record.file = task.file;
  record.payload = draft.payload.memory;
  record.line = task.line;
  record.func_id = task.func_id;
  record.first_entry = 0;
  record.payload_class = draft.payload.size_class;
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
void RingSubmitter::insert_accesses(const Draft& draft) {
  if (draft.entries == 0) return;
  if (draft.task.api == PTO_API_2026_03) return insert_each<false>(draft);
  if (draft.task.is_manual == 0) insert_each<true>(draft);
}

// `has_flags`: whether the parameters have the flag is_manual.
template <bool has_flags>
void RingSubmitter::insert_each(const Draft& draft) {
  TensorMap& map = run_.space.map();
  const pto_param* const params = draft.task.params;
  const uint32_t count = draft.task.num_params;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < count; ++index) {
    const uint32_t tag = params[index].tag;
    if (tag >= PTO_TAG_NO_DEP + uint32_t{has_flags}) continue;
    const Access& here = *access++;
    if (has_flags &&
        (tag == PTO_TAG_NO_DEP || (params[index].is_manual & (1 | PTO2_NO_ENTRY)) != 0)) {
      continue;
    }
    if (tag == PTO_TAG_INPUT) {
      if (run_.is_full) map.insert_reader(here, draft.id);
    } else {
      map.insert_writer(here, draft.id, draft.is_fresh(index));
    }
  }
}

bool RingSubmitter::log_submit(const Draft& draft) {
  engine::AccessLog& log = run_.log;
  const pto_tensor_task& task = draft.task;
  const bool has_flags = task.api != PTO_API_2026_03;
  const Access* access = draft.accesses;
  for (uint32_t index = 0; index < task.num_params; ++index) {
    const uint32_t tag = task.params[index].tag;
    if (tag == PTO_TAG_SCALAR) continue;
    pto_tensor_data tensor = *task.params[index].value.tensor;
    tensor.owner = draft.has_access(tag) ? (access++)->owner : owner_of(tensor);
    tensor.tag = static_cast<uint8_t>(tag);
    tensor.reserved[0] = static_cast<uint8_t>(index);
    const bool is_limited = has_flags && task.params[index].is_manual != 0;
    tensor.reserved[1] = is_limited ? PTO_LOGGED_ACCESS_OWNER : 0;
    if (!log.add_access(tensor)) return false;
  }
  if (task.predicate != nullptr && !log_operand(task)) return false;
  uint32_t traits = has_flags ? PTO_LOGGED_2026_08 : 0;
  if (task.is_manual != 0) traits |= PTO_LOGGED_MANUAL;
  const bool has_kernel = (draft.traits & kIsDummy) == 0;
  const int32_t core = has_kernel ? static_cast<int32_t>(draft.traits & kCoreType) : -1;
  const pto_logged_task row{draft.id, task.file, task.line,      task.func_id, draft.heap_address,
                            0,        core,      task.block_dim, traits};
  if (!log.add_task(row) || !log_details(draft)) return false;
  if (task.clusters == nullptr) return true;
  for (uint32_t block = 0; block < draft.count; ++block) {
    const int32_t group = run_.clusters.group(task.clusters[block]);
    if (!log.add_event(PTO_LOG_ON_CLUSTER, group, draft.id, task.file, task.line)) return false;
  }
  return true;
}

// Log the kernels of a task that runs several, and the edges of order that the program states.
bool RingSubmitter::log_details(const Draft& draft) {
  engine::AccessLog& log = run_.log;
  const pto_tensor_task& task = draft.task;
  for (uint32_t lane = 0; lane < PTO_LANES && task.lanes != 0; ++lane) {
    const int32_t func_id = task.lane_func_ids[lane];
    const bool is_used = (task.lanes >> lane & 1) != 0;
    if (is_used && !log.add_event(PTO_LOG_LANE, func_id, draft.id, task.file, task.line)) {
      return false;
    }
  }
  for (uint64_t index = 0; index < task.num_dependencies; ++index) {
    const pto_dependency& stated = task.dependencies[index];
    if ((stated.kinds & PTO_DEPENDENCY_WAIT) == 0) continue;
    const bool retains = (stated.kinds & PTO_DEPENDENCY_RETAIN) != 0;
    const uint32_t kind = retains ? PTO_LOG_RETAINING_EDGE : PTO_LOG_EDGE;
    if (!log.add_event(kind, stated.task, draft.id, task.file, task.line)) return false;
  }
  return true;
}

bool RingSubmitter::log_operand(const pto_tensor_task& task) {
  pto_tensor_data operand{};
  operand.buffer = {task.predicate->address, engine::kElementBytes[task.predicate->dtype]};
  operand.dtype = task.predicate->dtype;
  operand.tag = PTO_TAG_INPUT;
  operand.owner = task.predicate->owner;
  operand.owner = owner_of(operand);
  operand.reserved[0] = static_cast<uint8_t>(task.num_params);
  operand.reserved[1] = PTO_LOGGED_ACCESS_NONE;
  return run_.log.add_access(operand);
}

int64_t RingSubmitter::owner_of(const pto_tensor_data& tensor) {
  uint32_t ring = 0;
  HeapMemory& heaps = current_.heaps();
  if (tensor.owner >= 0 || !heaps.find_ring(tensor.buffer.addr, &ring)) return tensor.owner;
  return heaps.owner_of(ring, tensor.buffer.addr);
}

}  // namespace pto::ring_buffer
