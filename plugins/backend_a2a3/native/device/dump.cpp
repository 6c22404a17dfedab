#include "device/dump.hpp"

#include <algorithm>
#include <cstring>

#include "pto/engine/dumped_call.hpp"

namespace pto::a2a3 {
namespace {

// Each search has a lambda, so that the device library exports no function of the C++ library.
bool has(const uint64_t* sorted, uint32_t count, uint64_t value) {
  const auto is_less = [](uint64_t one, uint64_t other) { return one < other; };
  const uint64_t* found = std::lower_bound(sorted, sorted + count, value, is_less);
  return found != sorted + count && *found == value;
}

}  // namespace

void DeviceDump::begin(uint64_t address, Pool& pool) {
  dump_ = nullptr;
  if (address == 0) return;
  dump_ = from_host<pto_a2a3_dump>(address);
  from_host<char>(address, dump_->records);
  pool_ = &pool;
  kernels_ = reinterpret_cast<const uint64_t*>(dump_ + 1);
  tasks_ = kernels_ + dump_->num_kernels;
  buffers_ = reinterpret_cast<const pto_a2a3_range*>(tasks_ + dump_->num_tasks);
  end_ = lost_ = 0;
  std::memset(static_cast<void*>(calls_), 0, sizeof calls_);
}

void DeviceDump::end() {
  if (is_on()) Aicpu::invalidate(dump_, dump_->records + end_);
  dump_ = nullptr;
}

bool DeviceDump::selects(const pto_payload& payload) const {
  return dump_->is_for_all != 0 || has(kernels_, dump_->num_kernels, payload.kernel) ||
         has(tasks_, dump_->num_tasks, payload.task);
}

bool DeviceDump::contains(uint64_t begin, uint64_t end) const {
  uint64_t first = 0, last = 0;
  return pool_->contains(begin, end) || (find_buffer(begin, &first, &last) && end <= last);
}

bool DeviceDump::find_buffer(uint64_t address, uint64_t* begin, uint64_t* end) const {
  const auto starts_after = [](uint64_t at, const pto_a2a3_range& one) { return at < one.begin; };
  const pto_a2a3_range* next =
      std::upper_bound(buffers_, buffers_ + dump_->num_buffers, address, starts_after);
  if (next == buffers_ || address >= next[-1].end) return pool_->find(address, begin, end);
  *begin = next[-1].begin;
  *end = next[-1].end;
  return true;
}

// In the order of memory, parts are long: a line is dropped once, not for each of its elements.
void DeviceDump::invalidate(const pto_dump_tensor& view) const {
  engine::for_each_part(engine::in_memory_order(view), 0,
                        reinterpret_cast<const char*>(view.address), &Aicpu::invalidate);
}

void DeviceDump::before(const pto_a2a3_slot& slot, uint32_t core, bool is_together) {
  Call& call = calls_[core];
  call.is_selected = selects(slot.payload);
  call.is_together = is_together;
  const bool has_addresses = slot.payload.relative_args == 0;
  if (!call.is_selected || dump_->level == PTO_DUMP_OUTPUTS) return;
  if (dump_->level == PTO_DUMP_HASHES && !has_addresses) return;
  write(slot, core, PTO_DUMP_BEFORE);
}

void DeviceDump::after(const pto_a2a3_slot& slot, uint32_t core, bool has_failed) {
  Call& call = calls_[core];
  if (!call.is_selected) return;
  call.is_selected = false;
  if (has_failed) {
    call.bytes = 0;
  } else if (dump_->level == PTO_DUMP_FAILED) {
    if (call.bytes != 0) set_phase(*call.before, PTO_DUMP_DROPPED);
    return;
  }
  write(slot, core, has_failed ? PTO_DUMP_AFTER_FAILURE : PTO_DUMP_AFTER);
}

void DeviceDump::write(const pto_a2a3_slot& slot, uint32_t core, uint32_t phase) {
  Call& call = calls_[core];
  const bool is_hashed = dump_->level == PTO_DUMP_HASHES;
  engine::DumpedCall<DeviceDump> dumped(slot.payload, *this);
  pto_dump_record& head = dumped.head;
  head.core = core;
  head.phase = PTO_DUMP_DROPPED;
  head.is_together = call.is_together ? 1 : 0;
  head.name = sizeof slot.payload.kernel;
  head.payload = is_hashed ? 0 : slot.length;
  if (is_hashed) {
    dumped.place_hashes();
  } else {
    dumped.place();
  }
  const bool is_replaceable = dump_->level == PTO_DUMP_FAILED && phase == PTO_DUMP_BEFORE;
  const bool replaces = is_replaceable && head.bytes <= call.bytes;
  pto_dump_record* record = replaces ? call.before : reserve(head.bytes);
  if (record == nullptr) return;
  if (replaces) head.bytes = call.bytes;
  if (is_replaceable) call.before = record;
  if (is_replaceable) call.bytes = head.bytes;
  // Hashed after the place is reserved: the last record of a task has the hash of its last bytes.
  if (is_hashed) dumped.hash();
  auto* to = reinterpret_cast<char*>(record);
  const auto put = [&to](const void* from, uint64_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  put(&head, sizeof head);
  put(dumped.tensors, head.tensors * sizeof dumped.tensors[0]);
  put(&slot.payload.kernel, head.name);
  put(&slot.payload, head.payload);
  if (!is_hashed) dumped.copy_elements(reinterpret_cast<char*>(record));
  Aicpu::clean(record, head.bytes);
  set_phase(*record, phase);
}

// Returns the place of a new record, or null if it does not fit.
pto_dump_record* DeviceDump::reserve(uint64_t bytes) {
  while (locked_.exchange(true, std::memory_order_acquire)) {
  }
  pto_dump_record* record = nullptr;
  if (bytes <= dump_->limit - end_) {
    record = reinterpret_cast<pto_dump_record*>(reinterpret_cast<uint64_t>(dump_) + dump_->records +
                                                end_);
    *record = {};
    record->magic = PTO_DUMP_MAGIC;
    record->bytes = bytes;
    Aicpu::clean(record, sizeof *record);
    Aicpu::order_stores();
    end_ += bytes;
  } else {
    ++lost_;
  }
  Aicpu::store_flag(&dump_->end, end_);
  Aicpu::store_flag(&dump_->lost, lost_);
  Aicpu::clean(&dump_->end, PTO_A2A3_LINE);
  Aicpu::order_stores();
  locked_.store(false, std::memory_order_release);
  return record;
}

// What was written before is in memory when the host sees the new phase.
void DeviceDump::set_phase(pto_dump_record& record, uint32_t phase) {
  Aicpu::order_stores();
  Aicpu::store_flag(&record.phase, phase);
  Aicpu::clean(&record.phase, sizeof record.phase);
  Aicpu::order_stores();
}

}  // namespace pto::a2a3
