#include "graph.hpp"

#include <cstring>

namespace pto::build_graph {
namespace {

[[gnu::cold, gnu::noinline]] bool log_task(AccessLog& log, const pto_task& task, int64_t id,
                                           int32_t core_type) {
  const int32_t line = task.file != nullptr ? task.line : -1;
  return log.add_task({id, task.file, line, task.func_id, 0, 0, core_type, 0, 0});
}

// Whether the arguments of task `id` fit the signature of its kernel; if not, report the first that
// does not.
bool fits(const pto_task& task, const pto_signature& signature, int64_t id, Context& context) {
  ErrorFacts facts{PTO_ERROR_USAGE, id, -1, task.func_id, task.num_args};
  if (!engine::accepts(signature, task.num_args, 0)) {
    context.fail_at(task.file, task.line, facts, "task ", id, " (function ", task.func_id, ") has ",
                    task.num_args, " arguments, but the signature of its kernel lists ",
                    signature.num_arguments, "; pass as many");
    return false;
  }
  const pto_platform* platform = context.platform;
  for (uint32_t index = 0; index < task.num_args && index < signature.num_arguments; ++index) {
    const pto_declared_argument& declared = signature.arguments[index];
    const uint64_t value = task.args[index];
    pto_error found;
    std::memset(&found, 0, sizeof found);
    if (declared.tag == PTO_TAG_SCALAR
            ? engine::is_number(value, declared.dtype)
            : declared.tag == PTO_ANY ||
                  platform->check_range(platform->self, value, 0, &found) == PTO_OK) {
      continue;
    }
    facts.value = value;
    context.fail_at(task.file, task.line, facts, "argument ", index, " of task ", id, " (function ",
                    task.func_id, ") is ", Address{value},
                    ", but the signature of its kernel declares it ",
                    static_cast<const char*>(engine::DeclaredText(declared).text), ": ",
                    declared.tag == PTO_TAG_SCALAR ? "the type has no such number"
                                                   : static_cast<const char*>(found.message),
                    "; pass the arguments in the order of the signature");
    return false;
  }
  return true;
}

}  // namespace

bool Graph::create() {
  Memory& memory = context_.memory;
  return kernels_.create(memory) && tasks_.create(memory) && seeds_.create(memory) &&
         blocks_.create(memory) && pairs_.create(memory) && payloads_.create(memory);
}

void Graph::destroy() {
  log.destroy();
  payloads_.destroy();
  pairs_.destroy();
  blocks_.destroy();
  seeds_.destroy();
  tasks_.destroy();
  kernels_.destroy();
}

void Graph::begin(const BuildRules& rules, const pto_call_config* config) {
  rules_ = rules;
  log.begin(config);
  kernels_.clear();
  payloads_.restart();
  task_count_.store(0, std::memory_order_relaxed);
  edges_ = edges_to_completed_ = pair_count_ = 0;
  published_ = 0;
  block_count_ = 0;
  has_backward_edge_ = false;
}

int64_t Graph::add_task(const pto_task& task) {
  if (context_.latch.is_set()) return -1;
  const uint64_t kernel = task.kernel != 0 ? task.kernel : kernels_.address(task.func_id);
  const int32_t core_type = task.core_type >= 0 ? task.core_type : kernels_.core_type(task.func_id);
  const int64_t id = task_count_.load(std::memory_order_relaxed);
  if (!is_valid(task, kernel, core_type)) return reject_task(task, kernel, core_type), -1;
  if (context_.platform->checking && !are_values_plausible(task)) return -1;
  const pto_signature* signature = kernels_.signature(task.func_id);
  if (signature != nullptr && !fits(task, *signature, id, context_)) return -1;

  const uint32_t length = static_cast<uint32_t>(sizeof(pto_payload) + 8 * task.num_args);
  auto* payload = static_cast<pto_payload*>(payloads_.allocate(length));
  if (log.is_on() && !log_task(log, task, id, core_type))
    return out_of_memory("the access log"), -1;
  const auto number = static_cast<uint64_t>(id);
  if (payload == nullptr || (number % 64 == 0 && !begin_seeds(number / 64))) {
    return out_of_memory("another task"), -1;
  }
  seeds_[number / 64].vector |= static_cast<uint64_t>(core_type) << (number % 64);
  write_payload(payload, task, kernel);
  BuiltTask& record = this->record(id);
  record.fanin.store(0, std::memory_order_relaxed);
  record.fanin_count = 0;
  record.payload = payload;
  record.fanout.store(0, std::memory_order_relaxed);
  record.payload_length = static_cast<uint16_t>(length);
  record.core_type = static_cast<uint8_t>(core_type);
  record.published = 0;
  record.start_time = record.end_time = 0;
  task_count_.store(id + 1, std::memory_order_release);
  pto_trace(context_.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_SUBMIT, static_cast<uint64_t>(id),
            static_cast<uint64_t>(task.func_id));
  return id;
}

pto_status Graph::add_edge(int64_t from, int64_t to) {
  if (context_.latch.is_set()) return context_.latch.status();
  if (!contains(from) || !contains(to) || from == to) return reject_edge(from, to);
  BuiltTask& target = record(to);
  if (target.published) return reject_edge(from, to);
  pto_yield(context_.platform, PTO_YIELD_EDGE);
  has_backward_edge_ |= from > to;
  if (log.is_on() && !log.add_event(PTO_LOG_EDGE, from, to, nullptr, -1)) {
    return out_of_memory("the access log");
  }

  BuiltTask& source = record(from);
  uint32_t fanout = source.fanout.load(std::memory_order_relaxed);
  if (is_completed(fanout)) return ++edges_to_completed_, PTO_OK;
  int32_t* slot = successor_slot(source, fanout);
  if (slot == nullptr) return out_of_memory("another edge");
  *slot = static_cast<int32_t>(to);
  if (!rules_.concurrent) {
    source.fanout.store(fanout + 1, std::memory_order_relaxed);
    target.fanin.store(++target.fanin_count, std::memory_order_relaxed);
    seeds_[static_cast<uint64_t>(to) / 64].dependent |= uint64_t{1} << (to % 64);
  } else if (source.fanout.compare_exchange_strong(fanout, fanout + 1, std::memory_order_release,
                                                   std::memory_order_relaxed)) {
    ++target.fanin_count;
  } else {
    return ++edges_to_completed_, PTO_OK;  // `from` completed between the load and the exchange
  }
  ++edges_;
  pto_trace(context_.platform, PTO_TRACK_ORCHESTRATOR, PTO_TRACE_EDGE, static_cast<uint64_t>(from),
            static_cast<uint64_t>(to));
  return PTO_OK;
}

bool Graph::publish(int64_t id) {
  if (context_.latch.is_set()) return false;
  if (!contains(id)) {
    context_.fail({PTO_ERROR_USAGE, id}, "publish_task got task ", id,
                  ", which does not exist: there are ", task_count(),
                  " tasks; publish the ids that add_task returned");
    return false;
  }
  if (!rules_.explicit_publish) return false;
  BuiltTask& record = this->record(id);
  if (record.published) {
    context_.fail({PTO_ERROR_USAGE, id, -1, record.payload->func_id}, "task ", id,
                  " is published a second time; publish each task once");
    return false;
  }
  pto_yield(context_.platform, PTO_YIELD_PUBLISH);
  record.published = 1;
  ++published_;
  if (!rules_.concurrent) return false;
  const int32_t waits = record.fanin_count;
  return waits == 0 || record.fanin.fetch_add(waits, std::memory_order_acq_rel) + waits == 0;
}

pto_status Graph::record_tensor_pair(void* host, uint64_t device, size_t bytes) {
  if (context_.latch.is_set()) return context_.latch.status();
  if (host == nullptr || device == 0) {
    return context_.fail({PTO_ERROR_USAGE, -1, -1, -1, bytes}, "record_tensor_pair got a null ",
                         host == nullptr ? "host" : "device", " pointer for ", uint64_t{bytes},
                         " bytes; pass both ends of the copy");
  }
  if (!pairs_.grow_to(pair_count_)) return out_of_memory("another tensor pair");
  pairs_[pair_count_++] = {host, device, bytes};
  return PTO_OK;
}

pto_status Graph::copy_back() {
  const pto_platform* platform = context_.platform;
  for (uint64_t index = 0; index < pair_count_; ++index) {
    const TensorPair& pair = pairs_[index];
    if (pair.bytes == 0) continue;
    // set if the run was aborted after the copy of the previous pair
    if (context_.latch.is_set()) return context_.latch.status();
    const pto_status status =
        platform->copy_out(platform->self, pair.host, pair.device, pair.bytes);
    if (status == PTO_OK) continue;
    return context_.fail(
        {status, -1, -1, -1, pair.bytes}, "tensor pair ", index, " (", uint64_t{pair.bytes},
        " bytes from device address ", Address{pair.device},
        ") could not be copied back to the host; do not free its device "
        "buffer before the run has ended, and do not record more bytes than it has");
  }
  return PTO_OK;
}

bool Graph::is_valid(const pto_task& task, uint64_t kernel, int32_t core_type) const {
  return kernel != 0 && task.num_args <= PTO_MAX_KERNEL_ARGS &&
         (task.args != nullptr || task.num_args == 0) &&
         (core_type == PTO_CORE_AIC || core_type == PTO_CORE_AIV) &&
         task_count_.load(std::memory_order_relaxed) < kMaxTasks;
}

void Graph::reject_task(const pto_task& task, uint64_t kernel, int32_t core_type) {
  const int64_t id = task_count();
  const int32_t num_args = static_cast<int32_t>(task.num_args);
  ErrorFacts facts{PTO_ERROR_USAGE, id, -1, task.func_id};
  if (num_args < 0) {
    facts.value = task.num_args;
    context_.fail(facts, "add_task of task ", id, " got ", num_args,
                  " arguments; pass a number from 0 on");
  } else if (num_args > PTO_MAX_KERNEL_ARGS) {
    facts.status = PTO_ERROR_CAPACITY;
    facts.value = task.num_args;
    facts.limit = PTO_MAX_KERNEL_ARGS;
    context_.fail(facts, "task ", id, " (function ", task.func_id, ") has ", num_args,
                  " arguments; at most ", PTO_MAX_KERNEL_ARGS,
                  " are possible; pass the rest in a buffer in device memory");
  } else if (task.args == nullptr && num_args > 0) {
    context_.fail(facts, "add_task of task ", id, " got a null pointer for ", num_args,
                  " arguments; pass the array that holds them");
  } else if (kernel == 0) {
    reject_function(task.func_id);
  } else if (id >= kMaxTasks) {
    facts.status = PTO_ERROR_CAPACITY;
    facts.value = static_cast<uint64_t>(id) + 1;
    facts.limit = static_cast<uint64_t>(kMaxTasks);
    context_.fail(facts, "the graph has reached the limit of ", kMaxTasks,
                  " tasks; split the work into several runs");
  } else {
    facts.value = static_cast<uint64_t>(static_cast<int64_t>(core_type));
    context_.fail(facts, "task ", id, " (function ", task.func_id, ") has core type ", core_type,
                  "; use 0 (AIC) or 1 (AIV)");
  }
}

void Graph::reject_function(int32_t func_id) {
  char known[128];
  Text text(known, sizeof known);
  int32_t listed = 0;
  for (int32_t id = 0; id < kernels_.end(); ++id) {
    if (kernels_.address(id) == 0) continue;
    if (listed == 8) {
      text.add(", ...");
      break;
    }
    text.add(listed++ > 0 ? ", " : "", id);
  }
  const ErrorFacts facts{PTO_ERROR_USAGE, task_count(), -1, func_id};
  if (listed == 0) text.add("none");
  context_.fail(facts, "no kernel is registered under function id ", func_id,
                " (requested by task ", task_count(),
                "); registered function ids: ", static_cast<const char*>(known),
                "; use a registered id, or register the kernel under that id"
                " (func_id in kernel_config.py)");
}

pto_status Graph::reject_edge(int64_t from, int64_t to) {
  ErrorFacts facts{PTO_ERROR_USAGE, from, to};
  if (!contains(from) || !contains(to)) {
    return context_.fail(facts, "edge ", from, " -> ", to,
                         " names a task that does not exist: ", "there are ", task_count(),
                         " tasks; use the ids that add_task returned");
  }
  if (from == to) {
    facts.status = PTO_ERROR_CYCLE;
    return context_.fail(facts, "edge ", from, " -> ", to,
                         " makes the task wait for itself; remove it");
  }
  return context_.fail(facts, "edge ", from, " -> ", to, " was added after task ", to,
                       " was published, so the task may already run; add all edges into a task "
                       "before publish_task");
}

bool Graph::are_values_plausible(const pto_task& task) {
  const pto_platform* platform = context_.platform;
  for (uint32_t index = 0; index < task.num_args; ++index) {
    pto_error found;
    std::memset(&found, 0, sizeof found);
    const pto_status status = platform->check_value(platform->self, task.args[index], &found);
    if (status == PTO_OK) continue;
    context_.fail({status, task_count(), -1, task.func_id, task.args[index]}, "task ", task_count(),
                  " (function ", task.func_id, "), argument ", index, ": ",
                  static_cast<const char*>(found.message));
    return false;
  }
  return true;
}

void Graph::write_payload(pto_payload* payload, const pto_task& task, uint64_t kernel) {
  payload->kernel = kernel;
  payload->task = static_cast<uint64_t>(task_count_.load(std::memory_order_relaxed));
  payload->cookie = task.cookie;
  payload->func_id = task.func_id;
  payload->num_args = task.num_args;
  payload->relative_args = 0;
  uint64_t* args = pto_payload_args(payload);
  for (uint32_t index = 0; index < task.num_args; ++index) args[index] = task.args[index];
}

// Makes space for the 64 tasks of a word.
bool Graph::begin_seeds(uint64_t word) {
  if (!tasks_.grow_to(64 * word) || !seeds_.grow_to(word)) return false;
  seeds_[word] = {0, 0};
  return true;
}

int32_t* Graph::successor_slot(BuiltTask& record, uint32_t index) {
  if (index < kInlineSuccessors) return &record.successors[index];
  const uint32_t place = (index - kInlineSuccessors) % kBlockSuccessors;
  if (place == 0) {
    if (!blocks_.grow_to(block_count_)) return nullptr;
    if (index == kInlineSuccessors) {
      record.first_block = block_count_;
    } else {
      blocks_[record.last_block].next = block_count_;
    }
    record.last_block = block_count_++;
  }
  return &blocks_[record.last_block].successors[place];
}

pto_status Graph::out_of_memory(const char* what) {
  const uint64_t bytes = context_.memory.bytes();
  return context_.fail({PTO_ERROR_MEMORY, -1, -1, -1, bytes}, "no memory for ", what,
                       ": the graph of ", task_count(), " tasks and ", edges_,
                       " edges already holds ", bytes,
                       " bytes; build a smaller graph or free memory");
}

}  // namespace pto::build_graph
