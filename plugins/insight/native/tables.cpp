#include "tables.hpp"

#include <algorithm>
#include <string>

#include "pto/engine/tensor_region.hpp"

namespace pto::insight {
namespace {

constexpr uint64_t kSlab = 1024;

void check_tensor(const pto_tensor_data& tensor, size_t row) {
  uint32_t seen = 0;
  bool is_view = tensor.ndims <= PTO_MAX_DIMS && tensor.dtype < sizeof engine::kElementBytes &&
                 tensor.tag <= PTO_TAG_NO_DEP;
  for (uint32_t dim = 0; is_view && dim < tensor.ndims; ++dim) {
    const uint64_t raw = tensor.raw_shapes[dim];
    is_view = tensor.offsets[dim] <= raw && tensor.shapes[dim] <= raw - tensor.offsets[dim];
    seen |= uint32_t{1} << (tensor.order[dim] & 31);
  }
  if (is_view && seen == (uint32_t{1} << tensor.ndims) - 1) return;
  throw BadLog("access " + std::to_string(row) + " is not a view of a tensor");
}

}  // namespace

LogTables::LogTables(const LogRows& rows) : rows_(rows) {
  check();
  place();
}

void LogTables::check() const {
  uint64_t before = 0;
  for (const pto_logged_task& task : rows_.tasks) {
    if (task.accesses < before) throw BadLog("the accesses of tasks are not in order");
    before = task.accesses;
  }
  if (before != rows_.accesses.size()) throw BadLog("the tasks do not have all accesses");
  for (size_t row = 0; row < rows_.accesses.size(); ++row) check_tensor(rows_.accesses[row], row);
}

void LogTables::place() {
  const uint32_t count = tasks();
  index_of_.reserve(count);
  for (uint32_t task = 0; task < count; ++task) {
    if (!index_of_.emplace(rows_.tasks[task].id, task).second) {
      throw BadLog("two tasks have the id " + std::to_string(rows_.tasks[task].id));
    }
  }
  std::vector<uint64_t> bytes(count + 1, 0);  // size of the outputs of each task
  task_of_.resize(accesses());
  owner_of_.resize(accesses());
  for (uint32_t task = 0; task < count; ++task) {
    for (uint32_t access = first_access(task); access < end_access(task); ++access) {
      const pto_tensor_data& tensor = rows_.accesses[access];
      task_of_[access] = task;
      owner_of_[access] = tensor.owner < 0 ? kNone : index_of(tensor.owner);
      if (tensor.owner < 0) continue;
      const uint64_t end = tensor.buffer.addr + tensor.buffer.size;
      const uint64_t heap = rows_.tasks[owner_of_[access]].heap;
      if (end >= heap) bytes[owner_of_[access]] = std::max(bytes[owner_of_[access]], end - heap);
    }
  }
  uint64_t next = kHeap;
  for (uint64_t& size : bytes) {
    const uint64_t here = next;
    next += (size + 2 * kSlab - 1) / kSlab * kSlab;
    size = here;  // from here on: the address of the outputs
  }
  regions_.resize(accesses());
  for (uint32_t access = 0; access < accesses(); ++access) {
    pto_tensor_data tensor = rows_.accesses[access];
    const uint32_t owner = owner_of_[access];
    if (owner != kNone) tensor.buffer.addr += bytes[owner] - rows_.tasks[owner].heap;
    tensor.owner = owner == kNone ? -1 : owner;
    engine::locate_region(tensor, regions_[access]);
  }
}

uint32_t LogTables::owner_to_wait_for(uint32_t access) const {
  const uint32_t task = task_of(access);
  const uint32_t owner = owner_of_[access];
  if (owner == kNone || owner == task || !is_of_2026_08(task) || is_manual(task)) return kNone;
  const pto_tensor_data& tensor = rows_.accesses[access];
  if (tensor.reserved[1] == PTO_LOGGED_ACCESS_NONE) return kNone;
  for (uint32_t output = first_access(owner); output < end_access(owner); ++output) {
    if (is_fresh(output) && rows_.accesses[output].buffer.addr == tensor.buffer.addr) return output;
  }
  return kNone;
}

uint32_t LogTables::index_of(int64_t id) const {
  const auto found = index_of_.find(id);
  if (found != index_of_.end()) return found->second;
  throw BadLog("no task has the id " + std::to_string(id));
}

}  // namespace pto::insight
