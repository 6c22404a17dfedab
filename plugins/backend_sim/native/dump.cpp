#include "dump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "error.hpp"
#include "pto/engine/dumped_call.hpp"

namespace pto::sim {
namespace {

// The memory of the simulator, for engine::DumpedCall. Kernels write to it without caches.
struct DumpedMemory {
  const DeviceMemory& memory;

  bool contains(uint64_t begin, uint64_t end) const {
    const auto [base, bytes] = memory.whole();
    return begin >= base && end <= base + bytes;
  }
  bool find_buffer(uint64_t address, uint64_t* begin, uint64_t* end) const {
    return memory.find_buffer(address, begin, end);
  }
  void invalidate(const pto_dump_tensor&) const {}
};

template <class Element>
void put(std::vector<char>& record, const Element* elements, size_t count) {
  const auto* bytes = reinterpret_cast<const char*>(elements);
  record.insert(record.end(), bytes, bytes + count * sizeof(Element));
}

}  // namespace

pto_status Dump::begin(const pto_call_config* config, pto_error* error) {
  end();
  if (config == nullptr || config->enable_dump_tensor == PTO_DUMP_OFF) return PTO_OK;
  const int file = open(config->output_prefix, O_RDWR | O_CLOEXEC);
  const bool is_read = file >= 0 && pread(file, &header_, sizeof header_, 0) == sizeof header_;
  if (!is_read || header_.magic != PTO_DUMP_MAGIC) {
    const std::string why = is_read ? "it is no file of a dump" : std::strerror(errno);
    if (file >= 0) close(file);
    return fail(error, PTO_ERROR_USAGE, "cannot write the dump of the run to %s: %s",
                config->output_prefix, why.c_str());
  }
  std::string text(header_.names, '\0');
  text.resize(static_cast<size_t>(
      std::max<ssize_t>(pread(file, text.data(), text.size(), sizeof header_), 0)));
  names_.clear();
  tasks_.clear();
  for (size_t at = 0; at < text.size(); at += std::strlen(&text[at]) + 1) {
    if (text[at] == '#') {
      tasks_.insert(std::strtoull(&text[at + 1], nullptr, 10));
    } else {
      names_.insert(&text[at]);
    }
  }
  slots_.fill({});
  end_ = header_.first;
  limit_ = header_.first + header_.limit;
  level_ = config->enable_dump_tensor;
  is_on_ = true;
  const std::lock_guard lock(mutex_);
  file_ = file;
  return PTO_OK;
}

void Dump::end() noexcept {
  is_on_ = false;
  const std::lock_guard lock(mutex_);
  if (file_ >= 0) close(file_);
  file_ = -1;
}

void Dump::before(const Call& call) noexcept {
  if (level_ == PTO_DUMP_OUTPUTS) return;
  if (level_ == PTO_DUMP_HASHES && call.payload.relative_args != 0) return;
  write(call, PTO_DUMP_BEFORE, level_ == PTO_DUMP_FAILED ? &slots_[call.core] : nullptr);
}

void Dump::after(const Call& call, bool has_failed) noexcept {
  Slot& slot = slots_[call.core];
  if (has_failed) {
    slot = {};
  } else if (level_ == PTO_DUMP_FAILED) {
    const uint32_t dropped = PTO_DUMP_DROPPED;
    const std::lock_guard lock(mutex_);
    const auto at = static_cast<off_t>(slot.at + offsetof(pto_dump_record, phase));
    if (slot.at != 0 && pwrite(file_, &dropped, sizeof dropped, at) < 0) lose(errno);
    return;
  }
  write(call, has_failed ? PTO_DUMP_AFTER_FAILURE : PTO_DUMP_AFTER, nullptr);
}

void Dump::write(const Call& call, uint32_t phase, Slot* slot) noexcept try {
  const DumpedMemory memory{memory_};
  engine::DumpedCall<DumpedMemory> dumped(call.payload, memory);
  pto_dump_record& head = dumped.head;
  const bool is_hashed = level_ == PTO_DUMP_HASHES;
  head.core = call.core;
  head.phase = phase;
  head.is_together = call.is_together ? 1 : 0;
  head.name = static_cast<uint32_t>(call.kernel.name.size());
  head.library = is_hashed ? 0 : static_cast<uint32_t>(call.kernel.path.size());
  head.payload = is_hashed ? 0 : call.payload_bytes;
  if (is_hashed) {
    dumped.place_hashes();
  } else {
    dumped.place();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!fits(head.bytes, slot)) return lose();
  }
  if (is_hashed) dumped.hash();
  std::vector<char> record;
  record.reserve(head.bytes);
  put(record, &head, 1);
  put(record, dumped.tensors, head.tensors);
  put(record, call.kernel.name.data(), head.name);
  put(record, call.kernel.path.data(), head.library);
  put(record, reinterpret_cast<const char*>(&call.payload), head.payload);
  record.resize(head.bytes);
  if (!is_hashed) dumped.copy_elements(record.data());
  append(record, slot);
} catch (const std::bad_alloc&) {
  const std::lock_guard lock(mutex_);
  lose(ENOMEM);
}

// A record with a slot replaces the record there, if it is not longer.
void Dump::append(std::vector<char>& record, Slot* slot) {
  const std::lock_guard lock(mutex_);
  if (!fits(record.size(), slot)) return lose();
  const bool replaces = slot != nullptr && record.size() <= slot->bytes;
  const uint64_t at = replaces ? slot->at : end_;
  if (replaces) {
    std::memcpy(&record[offsetof(pto_dump_record, bytes)], &slot->bytes, sizeof slot->bytes);
  }
  const ssize_t written = pwrite(file_, record.data(), record.size(), static_cast<off_t>(at));
  if (written != static_cast<ssize_t>(record.size())) {
    limit_ = end_;  // this record is incomplete, so it is the last one
    return lose(written < 0 ? errno : ENOSPC);
  }
  if (!replaces) end_ += record.size();
  if (slot != nullptr && !replaces) *slot = {at, record.size()};
}

// Called with the mutex.
void Dump::lose(uint32_t error) noexcept {
  ++header_.lost;
  if (header_.error == 0) header_.error = error;
  if (file_ >= 0 && pwrite(file_, &header_, sizeof header_, 0) < 0) header_.error = errno;
}

}  // namespace pto::sim
