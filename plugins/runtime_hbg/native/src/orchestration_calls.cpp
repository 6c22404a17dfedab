// The functions of the table that an orchestration library receives.
//
// Published calls return void, or their callers often ignore the result. So every failure is
// latched here and ends the run.
#include <cstring>

#include "instance.hpp"

namespace pto::build_graph {
namespace {

Instance& instance_of(void* graph) {
  return *static_cast<Instance*>(graph);
}

bool is_over(void* graph) {
  return instance_of(graph).context().latch.is_set();
}

uint64_t address_of(const void* device) {
  return reinterpret_cast<uintptr_t>(device);
}

int32_t add_task(void* graph, const uint64_t* args, int32_t num_args, int32_t func_id,
                 int32_t core_type, uint64_t function_bin_addr, const char* file, int32_t line) {
  // Reject -1: it means "as registered" in the ABI, which this interface does not offer.
  const int32_t checked_type = core_type < 0 ? PTO_CORE_TYPES : core_type;
  const pto_task task{func_id, checked_type, static_cast<uint32_t>(num_args),
                      line,    args,         function_bin_addr,
                      0,       file};
  return static_cast<int32_t>(instance_of(graph).submit(task));
}

void add_successor(void* graph, int32_t from, int32_t to) {
  instance_of(graph).add_edge(from, to);
}

void publish_task(void* graph, int32_t task) {
  instance_of(graph).publish(task);
}

void record_tensor_pair(void* graph, void* host, void* device, size_t bytes) {
  instance_of(graph).graph().record_tensor_pair(host, address_of(device), bytes);
}

int32_t get_task_count(void* graph) {
  return static_cast<int32_t>(instance_of(graph).graph().task_count());
}

int32_t view_task(void* graph, int32_t task, pto_task_view* out) {
  const Graph& tasks = instance_of(graph).graph();
  if (!tasks.contains(task)) return -1;
  const BuiltTask& record = tasks.record(task);
  const uint32_t fanout = record.fanout.load(std::memory_order_acquire);
  const int32_t fanin = record.fanin.load(std::memory_order_relaxed);
  const bool has_all_of_fanin = !tasks.rules().concurrent || record.published;
  *out = {};
  out->func_id = record.payload->func_id;
  out->core_type = record.core_type;
  out->num_args = static_cast<int32_t>(record.payload->num_args);
  out->fanin = has_all_of_fanin ? fanin : fanin + record.fanin_count;
  out->fanout_count = static_cast<int32_t>(successor_count(fanout));
  out->function_bin_addr = record.payload->kernel;
  out->args = pto_payload_args(record.payload);
  return 0;
}

void get_successors(void* graph, int32_t task, int32_t* out, int32_t capacity) {
  const Graph& tasks = instance_of(graph).graph();
  if (!tasks.contains(task) || capacity <= 0) return;
  const BuiltTask& record = tasks.record(task);
  const uint32_t count = successor_count(record.fanout.load(std::memory_order_acquire));
  const uint32_t limit = static_cast<uint32_t>(capacity);
  tasks.for_each_successor(record, count < limit ? count : limit,
                           [&](int32_t successor) { *out++ = successor; });
}

int32_t get_initial_ready_tasks(void* graph, int32_t* out) {
  const Graph& tasks = instance_of(graph).graph();
  int32_t count = 0;
  for (int64_t id = 0; id < tasks.task_count(); ++id) {
    if (tasks.record(id).fanin_count != 0) continue;
    if (out != nullptr) out[count] = static_cast<int32_t>(id);
    ++count;
  }
  return count;
}

void print_task(Instance& instance, int64_t id) {
  const Graph& graph = instance.graph();
  const BuiltTask& record = graph.record(id);
  char line[512];
  Text text(line, sizeof line);
  text.add("task ", id, ": function ", record.payload->func_id,
           record.core_type == PTO_CORE_AIC ? ", aic, " : ", aiv, ", record.payload->num_args,
           " arguments, fan-in ", record.fanin_count, ", successors");
  const uint32_t count = successor_count(record.fanout.load(std::memory_order_acquire));
  if (count == 0) text.add(" none");
  graph.for_each_successor(record, count, [&](int32_t successor) { text.add(" ", successor); });
  const pto_platform* platform = instance.context().platform;
  platform->log(platform->self, PTO_LOG_INFO, line);
}

void print_runtime(void* graph) {
  constexpr int64_t kPrintedTasks = 256;
  Instance& instance = instance_of(graph);
  const int64_t count = instance.graph().task_count();
  const pto_platform* platform = instance.context().platform;
  char line[128];
  Text(line, sizeof line)
      .add(variant.name, ": ", count, " tasks, ", instance.graph().edges(), " edges");
  platform->log(platform->self, PTO_LOG_INFO, line);
  for (int64_t id = 0; id < count && id < kPrintedTasks; ++id) print_task(instance, id);
}

uint64_t get_function_bin_addr(void* graph, int32_t func_id) {
  return instance_of(graph).graph().kernels().address(func_id);
}

void set_kernel(Instance& instance, int32_t func_id, uint64_t address) {
  KernelTable& kernels = instance.graph().kernels();
  if (KernelTable::is_id(func_id)) {
    kernels.set(func_id, address, kernels.core_type(func_id));
    return;
  }
  instance.context().fail({PTO_ERROR_CAPACITY, -1, -1, func_id, 0, KernelTable::kMaxFunctions - 1},
                          "function id ", func_id, " is out of range; use 0 to ",
                          KernelTable::kMaxFunctions - 1);
}

void set_function_bin_addr(void* graph, int32_t func_id, uint64_t address) {
  if (!is_over(graph)) set_kernel(instance_of(graph), func_id, address);
}

const uint64_t* get_kernel_addrs(void* graph) {
  return instance_of(graph).graph().kernels().addresses();
}

void* device_malloc(void* graph, size_t bytes) {
  if (is_over(graph)) return nullptr;
  Context& context = instance_of(graph).context();
  uint64_t address = 0;
  const pto_status status = context.platform->allocate(context.platform->self, bytes, &address);
  if (status != PTO_OK) {
    context.fail({status, -1, -1, -1, bytes}, "device_malloc of ", uint64_t{bytes},
                 " bytes failed: device memory is exhausted; free buffers or raise the backend's "
                 "memory setting (sim.memory_bytes on the simulator)");
    return nullptr;
  }
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

void device_free(void* graph, void* device) {
  if (is_over(graph) || device == nullptr) return;
  Context& context = instance_of(graph).context();
  const pto_status status = context.platform->free(context.platform->self, address_of(device));
  if (status != PTO_OK) {
    context.fail({status, -1, -1, -1, address_of(device)}, "device_free of address ",
                 address_of(device),
                 ", which is not a live buffer; free each result of "
                 "device_malloc once");
  }
}

int32_t report_copy(Context& context, pto_status status, const char* call, const void* device,
                    size_t bytes) {
  if (status == PTO_OK) return 0;
  context.fail(
      {status, -1, -1, -1, address_of(device)}, call, " of ", uint64_t{bytes},
      " bytes at device address ", Address{address_of(device)},
      " failed: some of the bytes are outside a live device buffer or outside the host's array; "
      "check the pointers and the size");
  return -1;
}

int32_t copy_to_device(void* graph, void* device, const void* host, size_t bytes) {
  if (is_over(graph)) return -1;
  Context& context = instance_of(graph).context();
  if (bytes > 0 && host == nullptr) {
    context.fail({PTO_ERROR_USAGE, -1, -1, -1, bytes},
                 "copy_to_device got a null host pointer for ", uint64_t{bytes}, " bytes");
    return -1;
  }
  const pto_status status =
      context.platform->copy_in(context.platform->self, address_of(device), host, bytes);
  return report_copy(context, status, "copy_to_device", device, bytes);
}

int32_t copy_from_device(void* graph, void* host, const void* device, size_t bytes) {
  if (is_over(graph)) return -1;
  Context& context = instance_of(graph).context();
  if (bytes > 0 && host == nullptr) {
    context.fail({PTO_ERROR_USAGE, -1, -1, -1, bytes},
                 "copy_from_device got a null host pointer for ", uint64_t{bytes}, " bytes");
    return -1;
  }
  const pto_status status =
      context.platform->copy_out(context.platform->self, host, address_of(device), bytes);
  return report_copy(context, status, "copy_from_device", device, bytes);
}

uint64_t upload_kernel_binary(void* graph, int32_t func_id, const uint8_t* bytes, size_t length) {
  if (is_over(graph)) return 0;
  Context& context = instance_of(graph).context();
  uint64_t address = 0;
  const pto_status status = bytes == nullptr || length == 0
                                ? PTO_ERROR_USAGE
                                : context.platform->upload_kernel(context.platform->self, func_id,
                                                                  bytes, length, &address);
  if (status != PTO_OK) {
    context.fail({status, -1, -1, func_id, length}, "the binary of ", uint64_t{length},
                 " bytes for function id ", func_id,
                 " could not be uploaded; pass a complete "
                 "kernel library for this platform");
    return 0;
  }
  set_kernel(instance_of(graph), func_id, address);
  return address;
}

int32_t get_tensor_pair_count(void* graph) {
  return static_cast<int32_t>(instance_of(graph).graph().tensor_pairs());
}

void log(void* graph, int32_t level, const char* function, const char* message) {
  const pto_platform* platform = instance_of(graph).context().platform;
  char line[2048];
  Text(line, sizeof line).add(function, ": ", message);
  platform->log(platform->self, level, line);
}

void range_begin(void* graph, const char* name) {
  pto_record_range_begin(instance_of(graph).context().platform, PTO_TRACK_ORCHESTRATOR, name);
}

void range_end(void* graph) {
  pto_record_range_end(instance_of(graph).context().platform, PTO_TRACK_ORCHESTRATOR);
}

void fail(void* graph, const char* what) {
  instance_of(graph).context().fail({PTO_ERROR_ORCHESTRATION, -1, -1, -1, 1},
                                    "the orchestration threw an exception: ", what);
}

}  // namespace

pto_build_graph_calls orchestration_calls(uint32_t build_mode) {
  pto_build_graph_calls calls{};
  calls.version = PTO_BUILD_GRAPH_CALLS_VERSION;
  calls.build_mode = build_mode;
  calls.add_task = add_task;
  calls.add_successor = add_successor;
  calls.publish_task = publish_task;
  calls.record_tensor_pair = record_tensor_pair;
  calls.get_task_count = get_task_count;
  calls.view_task = view_task;
  calls.get_successors = get_successors;
  calls.get_initial_ready_tasks = get_initial_ready_tasks;
  calls.print_runtime = print_runtime;
  calls.get_function_bin_addr = get_function_bin_addr;
  calls.set_function_bin_addr = set_function_bin_addr;
  calls.get_kernel_addrs = get_kernel_addrs;
  calls.device_malloc = device_malloc;
  calls.device_free = device_free;
  calls.copy_to_device = copy_to_device;
  calls.copy_from_device = copy_from_device;
  calls.upload_kernel_binary = upload_kernel_binary;
  calls.get_tensor_pair_count = get_tensor_pair_count;
  calls.log = log;
  calls.range_begin = range_begin;
  calls.range_end = range_end;
  calls.fail = fail;
  return calls;
}

}  // namespace pto::build_graph
