#include "driver/captured_log.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "pto/abi/access_log.h"
#include "pto/abi/dtype.h"

namespace pto::hierarchy {
namespace {

class Writer {
 public:
  Writer(const CapturedGraph& graph, const Catalogue& catalogue, const SourcePlaces& places)
      : graph_(graph), catalogue_(catalogue), places_(places), bases_(graph.bases.size()) {}

  nb::dict write() {
    for (size_t i = 0; i < graph_.arguments.size(); ++i) {
      const AddressRange range = range_of(graph_.arguments[i]);
      bases_[i].bytes = range.end - range.begin;
      add_buffer("argument " + std::to_string(i), range.begin, bases_[i].bytes, true);
    }
    int64_t number = 0;  // of the next submit or allocation
    uint32_t allocations = 0;
    for (const CapturedStep& step : graph_.steps) {
      switch (step.what) {
        case CapturedStep::What::kSubmit:
          add_task(graph_.tasks[step.task], number++);
          break;
        case CapturedStep::What::kAllocate:
          ++number;
          bases_[step.base].bytes = step.bytes;
          add_buffer("alloc " + std::to_string(allocations++), graph_.bases[step.base], step.bytes,
                     false);
          break;
        case CapturedStep::What::kScopeBegin:
          add_event(PTO_LOG_SCOPE_BEGIN, 0, 0);
          break;
        case CapturedStep::What::kScopeEnd:
          add_event(PTO_LOG_SCOPE_END, 0, 0);
          break;
      }
    }
    return fields();
  }

 private:
  void add_task(const CapturedTask& task, int64_t number) {
    uint64_t heap = 0;
    for (uint32_t key = task.first_key; key < task.first_key + task.keys; ++key) {
      const CapturedKey& named = graph_.keys[key];
      const bool is_new = is_allocated(named.tensor);
      if (is_new && named.base != kNoBase) {
        bases_[named.base] = {number, named.tensor.bytes};
        if (heap == 0 || graph_.bases[named.base] < heap) heap = graph_.bases[named.base];
      }
      add_access(named, key - task.first_key);
    }
    const auto [file, line] = position(task.place);
    tasks_.push_back({number, reinterpret_cast<const char*>(file), line,
                      static_cast<int32_t>(task.callable), heap,
                      static_cast<uint32_t>(accesses_.size()), -1,
                      task.members > 1 ? task.members : 0u, 0});
    kernels_[nb::int_(task.callable)] = nb::cast(catalogue_.name(task.callable));
    for (uint32_t i = task.first_producer; i < task.first_producer + task.producers; ++i) {
      const Known::Producer& producer = graph_.producers[i];
      if ((producer.why & kExplicit) != 0)
        add_event(PTO_LOG_EDGE, number - producer.distance, number);
    }
  }

  void add_access(const CapturedKey& key, uint32_t index) {
    const Tensor& named = key.tensor;
    pto_tensor_data tensor{};
    tensor.buffer.addr = named.address;
    tensor.buffer.size = named.bytes;
    tensor.owner = -1;
    uint64_t offset = 0;
    if (named.child != kNone) {
      tensor.buffer.addr =
          uint64_t{1} << 61 | static_cast<uint64_t>(named.child) * kChildMemoryEnd | named.address;
    } else if (key.base != kNoBase) {
      tensor.owner = bases_[key.base].owner;
      tensor.buffer.addr = graph_.bases[key.base];
      tensor.buffer.size = bases_[key.base].bytes;
      offset = key.offset;
    }
    tensor.raw_shapes[0] = std::max(tensor.buffer.size, offset + named.bytes);
    tensor.shapes[0] = named.bytes;
    tensor.offsets[0] = tensor.start_offset = offset;
    tensor.ndims = 1;
    tensor.dtype = PTO_DTYPE_UINT8;
    tensor.tag = static_cast<uint8_t>(named.tag);
    tensor.reserved[0] = static_cast<uint8_t>(std::min<uint32_t>(index, 255));
    accesses_.push_back(tensor);
  }

  void add_event(uint32_t kind, int64_t first, int64_t second) {
    events_.push_back({kind, -1, nullptr, static_cast<int64_t>(tasks_.size()), first, second});
  }

  void add_buffer(const std::string& name, uint64_t address, uint64_t bytes, bool is_argument) {
    buffers_.append(nb::make_tuple(name, address, bytes, is_argument, is_argument));
  }

  // Return the number of the file and the line; 0 and -1 if they are unknown.
  std::pair<uintptr_t, int32_t> position(const Place& place) {
    const nb::object found = places_.file_and_line(place);
    const nb::object file = found[0];
    const nb::object line = found[1];
    if (file.is_none()) return {0, -1};
    const auto name = nb::cast<std::string>(file);
    const auto [known, is_new] = numbers_.try_emplace(name, numbers_.size() + 1);
    if (is_new) files_.append(file);
    return {known->second, line.is_none() ? -1 : nb::cast<int32_t>(line)};
  }

  template <class Row>
  static nb::bytes packed(const std::vector<Row>& rows) {
    return nb::bytes(rows.data(), rows.size() * sizeof(Row));
  }

  nb::dict fields() const {
    nb::dict made;
    made["tasks"] = packed(tasks_);
    made["accesses"] = packed(accesses_);
    made["events"] = packed(events_);
    made["files"] = files_;
    made["kernels"] = kernels_;
    made["buffers"] = buffers_;
    made["is_full"] = nb::bool_(graph_.hazards == Hazards::kFull);
    made["blocks"] = 0;
    made["has_ring_ids"] = nb::bool_(false);
    made["has_accesses"] = nb::bool_(true);
    return made;
  }

  struct BaseFacts {
    int64_t owner = kNone;  // task that allocated it
    uint64_t bytes = 0;
  };

  const CapturedGraph& graph_;
  const Catalogue& catalogue_;
  const SourcePlaces& places_;
  std::vector<BaseFacts> bases_;
  std::vector<pto_logged_task> tasks_;
  std::vector<pto_tensor_data> accesses_;
  std::vector<pto_logged_event> events_;
  std::map<std::string, uintptr_t> numbers_;
  nb::list files_;
  nb::dict kernels_;
  nb::list buffers_;
};

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> captured_edges(const CapturedGraph& graph) {
  std::vector<uint32_t> task_of;  // index of each submit; allocations have a number, too
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  for (const CapturedStep& step : graph.steps) {
    if (step.what == CapturedStep::What::kAllocate) task_of.push_back(~uint32_t{0});
    if (step.what != CapturedStep::What::kSubmit) continue;
    const CapturedTask& task = graph.tasks[step.task];
    for (uint32_t i = task.first_producer; i < task.first_producer + task.producers; ++i) {
      edges.emplace_back(task_of[task_of.size() - graph.producers[i].distance], step.task);
    }
    task_of.push_back(step.task);
  }
  std::sort(edges.begin(), edges.end(), [](const auto& one, const auto& other) {
    return std::pair(one.second, one.first) < std::pair(other.second, other.first);
  });
  return edges;
}

nb::dict captured_log(const CapturedObject& captured, const Catalogue& catalogue,
                      const SourcePlaces& places) {
  return Writer(*captured.graph, catalogue, places).write();
}

}  // namespace pto::hierarchy
