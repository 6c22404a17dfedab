#include "run_log.hpp"

#include <unordered_map>

#include "device.hpp"

namespace pto::core {
namespace {

// Gives each file a number. Number 0 is an unknown file.
class Files {
 public:
  const char* number(const char* file) {
    if (file == nullptr) return nullptr;
    auto [found, is_new] = numbers_.try_emplace(file, names_.size() + 1);
    if (is_new) names_.append(nb::cast(std::string(file)));
    return reinterpret_cast<const char*>(found->second);
  }
  nb::list names() const { return names_; }

 private:
  std::unordered_map<const char*, uintptr_t> numbers_;
  nb::list names_;
};

// Return the rows with the number of the file in place of the pointer to its name.
template <class Row>
nb::bytes packed(const Row* rows, uint64_t count, Files& files) {
  std::vector<Row> copy(rows, rows + count);
  for (Row& row : copy) row.file = files.number(row.file);
  return nb::bytes(copy.data(), count * sizeof(Row));
}

}  // namespace

nb::object read_access_log(const Device& device, const RunSettings& settings,
                           const Arguments& arguments,
                           const std::vector<std::shared_ptr<Buffer>>& temporaries,
                           const Measured& measured,
                           const std::function<std::string(int32_t)>& kernel_name) {
  pto_access_log log{};
  device.runtime_api()->access_log(device.runtime(), &log);
  Files files;
  nb::dict fields;
  fields["tasks"] = packed(log.tasks, log.num_tasks, files);
  fields["accesses"] = nb::bytes(log.accesses, log.num_accesses * sizeof(pto_tensor_data));
  fields["events"] = packed(log.events, log.num_events, files);
  fields["files"] = files.names();
  fields["is_measured"] = nb::bool_(settings.measures);
  const std::vector<pto_measured_range>& ranges = measured.ranges();
  fields["measured"] = nb::bytes(ranges.data(), ranges.size() * sizeof(pto_measured_range));
  fields["written"] = nb::bytes(measured.written().data(), measured.written().size());
  nb::dict kernels;
  for (uint64_t task = 0; task < log.num_tasks; ++task) {
    const int32_t func_id = log.tasks[task].func_id;
    if (!kernels.contains(nb::int_(func_id))) {
      kernels[nb::int_(func_id)] = nb::cast(kernel_name(func_id));
    }
  }
  fields["kernels"] = kernels;
  nb::list buffers = arguments.placed_buffers();
  for (size_t i = 0; i < temporaries.size(); ++i) {
    const std::string name = "empty " + std::to_string(i);
    buffers.append(
        nb::make_tuple(name, temporaries[i]->address, temporaries[i]->bytes, false, false));
  }
  fields["buffers"] = buffers;
  fields["host_arrays"] = arguments.host_arrays();
  fields["is_full"] = nb::bool_(settings.hazards == PTO_HAZARDS_FULL);
  fields["blocks"] = device.blocks_of(settings.call);
  fields["has_ring_ids"] = nb::bool_(device.has(PTO_RUNTIME_RING_IDS));
  fields["has_accesses"] = nb::bool_(device.has(PTO_RUNTIME_TENSORS));
  return fields;
}

}  // namespace pto::core
