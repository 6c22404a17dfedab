#include "graph_image.hpp"

#include <cstring>

namespace pto::build_graph {
namespace {

constexpr uint32_t kMagic = 0x47525450;  // "PTRG"

size_t successor_bytes(uint64_t count) {
  return (count * sizeof(int32_t) + 7) / 8 * 8;
}

// `at` is the first byte after the header, and `bytes` a multiple of 8.
uint64_t hash_of(const char* at, size_t bytes, uint64_t tasks) {
  uint64_t hash = 0xCBF29CE484222325u + tasks;
  for (size_t done = 0; done < bytes; done += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, at + done, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

uint32_t successors_of(const BuiltTask& record) {
  return successor_count(record.fanout.load(std::memory_order_relaxed));
}

// The parts of one task in an image.
struct TaskView {
  ImageTask header;
  const char* payload;
  const char* successors;
};

// Reads the task at `at` and moves `at` behind it. Returns false if it does not lie in the image.
bool next_task(const char*& at, const char* end, TaskView& view) {
  if (static_cast<size_t>(end - at) < sizeof view.header) return false;
  std::memcpy(&view.header, at, sizeof view.header);
  at += sizeof view.header;
  const uint32_t payload_bytes = view.header.payload_bytes;
  if (payload_bytes < sizeof(pto_payload) || payload_bytes % 8 != 0 ||
      static_cast<size_t>(end - at) < payload_bytes) {
    return false;
  }
  view.payload = at;
  at += payload_bytes;
  const size_t bytes = successor_bytes(view.header.successors);
  if (static_cast<size_t>(end - at) < bytes) return false;
  view.successors = at;
  at += bytes;
  return true;
}

bool add_task(const TaskView& view, int64_t id, Graph& graph) {
  pto_payload payload;
  std::memcpy(&payload, view.payload, sizeof payload);
  const uint64_t words = (view.header.payload_bytes - sizeof payload) / sizeof(uint64_t);
  if (payload.num_args != words || words > PTO_MAX_KERNEL_ARGS || payload.relative_args != 0 ||
      payload.task != static_cast<uint64_t>(id)) {
    return false;
  }
  uint64_t args[PTO_MAX_KERNEL_ARGS];
  std::memcpy(args, view.payload + sizeof payload, words * sizeof(uint64_t));
  // -1 would mean the core type of the registered kernel.
  const int32_t core_type = view.header.core_type < 0 ? PTO_CORE_TYPES : view.header.core_type;
  const pto_task task{payload.func_id, core_type,      payload.num_args, 0, args,
                      payload.kernel,  payload.cookie, nullptr};
  return graph.add_task(task) == id;
}

// Writes one task and returns the address after it.
char* write_task(Graph& graph, const BuiltTask& record, char* at) {
  const uint32_t count = successors_of(record);
  const ImageTask task = {record.payload_length, record.core_type, count, 0};
  std::memcpy(at, &task, sizeof task);
  at += sizeof task;
  pto_payload payload = *record.payload;
  if (payload.kernel == graph.kernels().address(payload.func_id)) payload.kernel = 0;
  std::memcpy(at, record.payload, record.payload_length);
  std::memcpy(at, &payload, sizeof payload);
  at += record.payload_length;
  std::memset(at, 0, successor_bytes(count));
  char* successor = at;
  graph.for_each_successor(record, count, [&](int32_t to) {
    std::memcpy(successor, &to, sizeof to);
    successor += sizeof to;
  });
  return at + successor_bytes(count);
}

bool is_whole(const GraphImage& header, const void* image, size_t bytes) {
  return header.bytes <= bytes && header.bytes >= sizeof header && header.bytes % 8 == 0 &&
         header.hash == hash_of(static_cast<const char*>(image) + sizeof header,
                                header.bytes - sizeof header, header.tasks);
}

pto_status refuse_version(uint32_t version, Context& context) {
  ErrorFacts facts{PTO_ERROR_USAGE};
  facts.value = version;
  facts.limit = kGraphImageVersion;
  return context.fail(facts, "the image of the graph has version ", version,
                      ", and the runtime of the device reads version ", kGraphImageVersion,
                      "; build the runtime of the host and of the device from the same release");
}

pto_status refuse_content(size_t bytes, Context& context) {
  return context.fail({PTO_ERROR_USAGE}, "the ", uint64_t{bytes},
                      " bytes are not a whole image of a graph: they were changed or cut off on "
                      "the way to the device; run the program again");
}

bool add_tasks(const GraphImage& header, const char* at, const char* end, Graph& graph) {
  TaskView view;
  for (uint64_t id = 0; id < header.tasks; ++id) {
    if (!next_task(at, end, view) || !add_task(view, static_cast<int64_t>(id), graph)) return false;
  }
  return true;
}

// Requires that add_tasks() returned true.
void add_edges(const GraphImage& header, const char* at, const char* end, Graph& graph) {
  TaskView view;
  for (uint64_t id = 0; id < header.tasks && next_task(at, end, view); ++id) {
    for (uint32_t i = 0; i < view.header.successors; ++i) {
      int32_t to;
      std::memcpy(&to, view.successors + i * sizeof to, sizeof to);
      graph.add_edge(static_cast<int64_t>(id), to);
    }
  }
}

}  // namespace

size_t write_graph(Graph& graph, void* out, size_t capacity) {
  const int64_t tasks = graph.task_count();
  size_t bytes = sizeof(GraphImage);
  for (int64_t id = 0; id < tasks; ++id) {
    const BuiltTask& record = graph.record(id);
    bytes += sizeof(ImageTask) + record.payload_length + successor_bytes(successors_of(record));
  }
  if (bytes > capacity) return bytes;
  char* first = static_cast<char*>(out) + sizeof(GraphImage);
  char* at = first;
  for (int64_t id = 0; id < tasks; ++id) at = write_task(graph, graph.record(id), at);
  const GraphImage header = {
      kMagic, kGraphImageVersion, bytes, static_cast<uint64_t>(tasks),
      hash_of(first, bytes - sizeof(GraphImage), static_cast<uint64_t>(tasks))};
  std::memcpy(out, &header, sizeof header);
  return bytes;
}

pto_status read_graph(const void* image, size_t bytes, Graph& graph, Context& context) {
  GraphImage header;
  if (bytes < sizeof header) return refuse_content(bytes, context);
  std::memcpy(&header, image, sizeof header);
  if (header.magic != kMagic) return refuse_content(bytes, context);
  if (header.version != kGraphImageVersion) return refuse_version(header.version, context);
  if (!is_whole(header, image, bytes)) return refuse_content(bytes, context);
  const char* first = static_cast<const char*>(image) + sizeof header;
  const char* end = static_cast<const char*>(image) + header.bytes;
  if (!add_tasks(header, first, end, graph)) return refuse_content(bytes, context);
  add_edges(header, first, end, graph);
  return context.latch.status();
}

}  // namespace pto::build_graph
