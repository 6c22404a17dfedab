#include "dump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "error.hpp"
#include "pto/engine/tensor_region.hpp"

namespace pto::sim {
namespace {

// The data types of 2026-08, by their published codes; those without an equal are bytes.
constexpr uint8_t kTypesOfChipTensors[] = {
    PTO_DTYPE_FLOAT32,       PTO_DTYPE_FLOAT16, PTO_DTYPE_INT32,    PTO_DTYPE_INT16,
    PTO_DTYPE_INT8,          PTO_DTYPE_UINT8,   PTO_DTYPE_BFLOAT16, PTO_DTYPE_INT64,
    PTO_DTYPE_UINT64,        PTO_DTYPE_UINT16,  PTO_DTYPE_UINT32,   PTO_DTYPE_BOOL,
    PTO_DTYPE_FLOAT8_E4M3FN, PTO_DTYPE_UINT8,   PTO_DTYPE_UINT8};

const uint64_t* arguments_of(const pto_payload& payload) {
  return reinterpret_cast<const uint64_t*>(&payload + 1);
}

bool is_relative(const pto_payload& payload, uint32_t argument) {
  return (payload.relative_args >> argument & 1) != 0;
}

// Only tasks of 2026-08 have contexts.
bool is_of_2026_08(const pto_payload& payload) {
  return payload.num_args == PTO_CONTEXT_ARGS + 2 && is_relative(payload, PTO_CONTEXT_ARGS + 1);
}

pto_dump_tensor described(const pto_tensor_data& tensor) {
  pto_dump_tensor found{};
  const uint64_t element = engine::kElementBytes[tensor.dtype];
  found.dtype = static_cast<uint8_t>(tensor.dtype);
  found.tag = tensor.tag;
  found.address = tensor.buffer.addr + tensor.start_offset * element;
  uint32_t dim_in_memory[PTO_MAX_DIMS] = {};
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) dim_in_memory[tensor.order[dim]] = dim;
  uint64_t strides[PTO_MAX_DIMS] = {};
  uint64_t stride = element;
  for (uint32_t place = tensor.ndims; place-- > 0;) {
    strides[dim_in_memory[place]] = stride;
    stride *= tensor.raw_shapes[dim_in_memory[place]];
  }
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    if ((tensor.dropped >> dim & 1) != 0) continue;  // the program does not see this dimension
    found.shapes[found.ndims] = tensor.shapes[dim];
    found.strides[found.ndims++] = strides[dim];
  }
  return found;
}

pto_dump_tensor described(const pto_chip_tensor& tensor) {
  pto_dump_tensor found{};
  found.dtype = kTypesOfChipTensors[tensor.dtype];
  const uint64_t element = engine::kElementBytes[found.dtype];
  found.tag = PTO_ANY;
  found.ndims = static_cast<uint8_t>(tensor.ndims);
  found.address = tensor.buffer.addr + tensor.start_offset * element;
  for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
    found.shapes[dim] = tensor.shapes[dim];
    found.strides[dim] = tensor.strides[dim] * element;
  }
  return found;
}

// Return a hash of bytes. Each step maps the states of a lane one to one, so a change of one word
// always changes the hash. The four lanes do not wait for each other.
uint64_t hash_of(const char* bytes, uint64_t count) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
  constexpr uint64_t kLanes = 4;
  const auto mixed = [](uint64_t lane, uint64_t word) {
    return std::rotl((lane ^ word) * kOdd, 29);
  };
  uint64_t lanes[kLanes] = {1, 2, 3, 4};
  uint64_t words[kLanes];
  uint64_t at = 0;
  for (; at + sizeof words <= count; at += sizeof words) {
    std::memcpy(words, bytes + at, sizeof words);
    for (uint64_t i = 0; i < kLanes; ++i) lanes[i] = mixed(lanes[i], words[i]);
  }
  std::fill_n(words, kLanes, 0);
  std::memcpy(words, bytes + at, count - at);
  uint64_t hash = count;
  for (uint64_t i = 0; i < kLanes; ++i) hash = mixed(hash, mixed(lanes[i], words[i]));
  return hash ^ hash >> 32;
}

bool is_dense(const pto_dump_tensor& view, uint32_t dim) {
  uint64_t rest = engine::kElementBytes[view.dtype];
  for (uint32_t at = view.ndims; at-- > dim; rest *= view.shapes[at])
    if (view.strides[at] != rest && view.shapes[at] != 1) return false;
  return true;
}

// Copy the elements of a view to `to`, in the order of its dimensions from `dim` on.
char* gather(const pto_dump_tensor& view, uint32_t dim, const char* from, char* to) {
  if (is_dense(view, dim)) {
    uint64_t rest = engine::kElementBytes[view.dtype];
    for (uint32_t at = dim; at < view.ndims; ++at) rest *= view.shapes[at];
    std::memcpy(to, from, rest);
    return to + rest;
  }
  for (uint64_t at = 0; at < view.shapes[dim]; ++at)
    to = gather(view, dim + 1, from + at * view.strides[dim], to);
  return to;
}

uint64_t hash_of(const pto_dump_tensor& view) {
  const auto* elements = reinterpret_cast<const char*>(view.address);
  if (is_dense(view, 0)) return hash_of(elements, view.bytes);
  static thread_local std::vector<char> dense;
  dense.resize(std::max<size_t>(dense.size(), view.bytes));
  gather(view, 0, elements, dense.data());
  return hash_of(dense.data(), view.bytes);
}

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

void Dump::add_tensor(const Call& call, uint32_t argument,
                      std::vector<pto_dump_tensor>& found) const {
  const uint64_t address = arguments_of(call.payload)[argument];
  pto_dump_tensor view{};
  if (is_of_2026_08(call.payload)) {
    const auto& tensor = *reinterpret_cast<const pto_chip_tensor*>(address);
    if (tensor.ndims > PTO_MAX_DIMS || tensor.dtype >= std::size(kTypesOfChipTensors)) return;
    view = described(tensor);
    view.buffer = tensor.buffer.addr;
    view.buffer_bytes = tensor.buffer.size;
  } else {
    const auto& tensor = *reinterpret_cast<const pto_tensor_data*>(address);
    const bool is_valid = tensor.ndims <= PTO_MAX_DIMS && tensor.dtype < PTO_DTYPE_COUNT;
    if (!is_valid || engine::is_key(tensor)) return;
    view = described(tensor);
    view.buffer = tensor.buffer.addr;
    view.buffer_bytes = tensor.buffer.size;
  }
  view.argument = argument;
  view.bytes = engine::kElementBytes[view.dtype];
  uint64_t last = view.address + view.bytes;
  for (uint32_t dim = 0; dim < view.ndims; ++dim) {
    view.bytes *= view.shapes[dim];
    last += (view.shapes[dim] - 1) * view.strides[dim];
  }
  const auto [base, bytes] = memory_.whole();
  if (view.bytes != 0 && view.address >= base && last <= base + bytes) found.push_back(view);
}

void Dump::add_buffer(uint64_t address, uint32_t argument,
                      std::vector<pto_dump_tensor>& found) const {
  pto_dump_tensor view{};
  uint64_t end = 0;
  if (!memory_.find_buffer(address, &view.address, &end)) return;
  const auto is_same = [&](const pto_dump_tensor& one) { return one.address == view.address; };
  if (std::any_of(found.begin(), found.end(), is_same)) return;
  view.buffer = view.address;
  view.bytes = view.buffer_bytes = view.shapes[0] = end - view.address;
  view.strides[0] = 1;
  view.argument = argument;
  view.dtype = PTO_DTYPE_UINT8;
  view.ndims = 1;
  view.tag = PTO_ANY;
  found.push_back(view);
}

std::vector<pto_dump_tensor> Dump::tensors_of(const Call& call) const {
  const pto_payload& payload = call.payload;
  const uint32_t count = is_of_2026_08(payload) ? PTO_CONTEXT_ARGS : payload.num_args;
  std::vector<pto_dump_tensor> found;
  for (uint32_t i = 0; i < count; ++i) {
    if (is_relative(payload, i)) {
      add_tensor(call, i, found);
    } else if (payload.relative_args == 0) {
      add_buffer(arguments_of(payload)[i], i, found);
    }
  }
  return found;
}

void Dump::write(const Call& call, uint32_t phase, Slot* slot) noexcept try {
  std::vector<pto_dump_tensor> tensors = tensors_of(call);
  const bool is_hashed = level_ == PTO_DUMP_HASHES;
  if (is_hashed) {
    std::erase_if(tensors, [](const pto_dump_tensor& one) {
      return one.tag == PTO_TAG_INPUT || one.tag == PTO_TAG_NO_DEP;
    });
  }
  pto_dump_record head{};
  head.magic = PTO_DUMP_MAGIC;
  head.task = call.payload.task;
  head.address = reinterpret_cast<uint64_t>(&call.payload);
  head.func_id = call.payload.func_id;
  head.core = call.core;
  head.phase = phase;
  head.is_together = call.is_together ? 1 : 0;
  head.tensors = static_cast<uint32_t>(tensors.size());
  head.name = static_cast<uint32_t>(call.kernel.name.size());
  head.library = is_hashed ? 0 : static_cast<uint32_t>(call.kernel.path.size());
  head.payload = is_hashed ? 0 : call.payload_bytes;
  uint64_t at =
      sizeof head + tensors.size() * sizeof tensors[0] + head.name + head.library + head.payload;
  for (pto_dump_tensor& tensor : tensors) {
    tensor.at = is_hashed ? hash_of(tensor) : at;
    if (!is_hashed) at += tensor.bytes;
  }
  head.bytes = at = (at + 7) & ~uint64_t{7};
  {
    const std::lock_guard lock(mutex_);
    if (!fits(at, slot)) return lose();
  }
  std::vector<char> record;
  record.reserve(at);
  put(record, &head, 1);
  put(record, tensors.data(), tensors.size());
  put(record, call.kernel.name.data(), head.name);
  put(record, call.kernel.path.data(), head.library);
  put(record, reinterpret_cast<const char*>(&call.payload), head.payload);
  record.resize(at);
  for (const pto_dump_tensor& tensor : tensors) {
    if (is_hashed) break;
    gather(tensor, 0, reinterpret_cast<const char*>(tensor.address), &record[tensor.at]);
  }
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
