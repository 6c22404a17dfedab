// The record of a dump for one call of a kernel (pto/abi/dump.h). The payload of the call names its
// arrays.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "pto/abi/dump.h"
#include "pto/abi/payload.h"
#include "pto/abi/runtime.h"
#include "pto/engine/tensor_region.hpp"

namespace pto::engine {

// A hash of bytes that are added in parts. Each step maps the states of a lane one to one, so a
// change of one word always changes the hash. The four lanes do not wait for each other.
class DumpHash {
 public:
  void add(const char* bytes, uint64_t count) {
    count_ += count;
    if (filled_ == 0 && count >= sizeof part_) {
      const uint64_t whole = count / sizeof lanes_ * sizeof lanes_;
      mix(bytes, whole);
      bytes += whole;
      count -= whole;
    }
    while (count > 0) {
      const uint64_t left = sizeof part_ - filled_;
      const uint64_t more = count < left ? count : left;
      std::memcpy(part_ + filled_, bytes, more);
      filled_ += more;
      bytes += more;
      count -= more;
      if (filled_ < sizeof part_) return;
      mix(part_, filled_);
      filled_ = 0;
    }
  }
  // Return the hash of all bytes. Nothing may be added after it.
  uint64_t value() {
    const uint64_t whole = filled_ / sizeof lanes_ * sizeof lanes_;
    mix(part_, whole);
    uint64_t words[kLanes] = {};
    std::memcpy(words, part_ + whole, filled_ - whole);
    uint64_t hash = count_;
    for (uint64_t i = 0; i < kLanes; ++i) hash = mixed(hash, mixed(lanes_[i], words[i]));
    return hash ^ hash >> 32;
  }

 private:
  static constexpr uint64_t kLanes = 4;

  static uint64_t mixed(uint64_t lane, uint64_t word) {
    const uint64_t product = (lane ^ word) * 0x9E3779B97F4A7C15;
    return product << 29 | product >> 35;
  }
  void mix(const char* bytes, uint64_t count) {
    uint64_t lanes[kLanes], words[kLanes];
    std::memcpy(lanes, lanes_, sizeof lanes);
    for (uint64_t at = 0; at < count; at += sizeof words) {
      std::memcpy(words, bytes + at, sizeof words);
      for (uint64_t i = 0; i < kLanes; ++i) lanes[i] = mixed(lanes[i], words[i]);
    }
    std::memcpy(lanes_, lanes, sizeof lanes);
  }

  uint64_t lanes_[kLanes] = {1, 2, 3, 4};
  uint64_t count_ = 0;
  uint64_t filled_ = 0;  // bytes of part_
  char part_[1024];
};

// Call `use` with each part of a view that is contiguous in memory, in the order of its dimensions
// from `dim` on.
template <class Use>
void for_each_part(const pto_dump_tensor& view, uint32_t dim, const char* from, const Use& use) {
  uint64_t rest = kElementBytes[view.dtype];
  bool is_dense = true;
  for (uint32_t at = view.ndims; at-- > dim; rest *= view.shapes[at]) {
    if (view.strides[at] != rest && view.shapes[at] != 1) is_dense = false;
  }
  if (is_dense || dim == PTO_MAX_DIMS) return use(from, rest);
  for (uint64_t at = 0; at < view.shapes[dim]; ++at) {
    for_each_part(view, dim + 1, from + at * view.strides[dim], use);
  }
}

// Return the same elements with the dimensions in the order of memory.
inline pto_dump_tensor in_memory_order(pto_dump_tensor view) {
  for (uint32_t end = view.ndims; end > 1; --end) {
    for (uint32_t dim = 1; dim < end; ++dim) {
      if (view.strides[dim - 1] >= view.strides[dim]) continue;
      std::swap(view.strides[dim - 1], view.strides[dim]);
      std::swap(view.shapes[dim - 1], view.shapes[dim]);
    }
  }
  return view;
}

// The record of a call with the descriptions of its arrays.
//
// `Memory` knows the memory of the device: contains(begin, end), find_buffer(address, &begin,
// &end), and invalidate(view), which drops the elements of a view from the cache.
template <class Memory>
class DumpedCall {
 public:
  // Describes the arrays of a call. No argument of the payload is an offset any more.
  DumpedCall(const pto_payload& payload, const Memory& memory) : memory_(memory), head{} {
    head.magic = PTO_DUMP_MAGIC;
    head.task = payload.task;
    head.address = reinterpret_cast<uint64_t>(&payload);
    head.func_id = payload.func_id;
    const uint32_t count = is_of_2026_08(payload) ? PTO_CONTEXT_ARGS : payload.num_args;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t argument = reinterpret_cast<const uint64_t*>(&payload + 1)[i];
      if (is_relative(payload, i)) {
        add_tensor(payload, argument, i);
      } else if (payload.relative_args == 0) {
        add_buffer(argument, i);
      }
    }
  }

  // Leaves out the inputs and all elements.
  void place_hashes() {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < head.tensors; ++i) {
      if (tensors[i].tag == PTO_TAG_INPUT || tensors[i].tag == PTO_TAG_NO_DEP) continue;
      tensors[kept++] = tensors[i];
    }
    head.tensors = kept;
    close(elements_begin());
  }
  // Replaces the places of the elements by hashes.
  void hash() {
    for (uint32_t i = 0; i < head.tensors; ++i) {
      DumpHash hash;
      read(tensors[i], [&](const char* part, uint64_t bytes) { hash.add(part, bytes); });
      tensors[i].at = hash.value();
    }
  }
  // Places the elements after the payload. head.name, .library and .payload are set.
  void place() {
    uint64_t at = elements_begin();
    for (uint32_t i = 0; i < head.tensors; ++i) {
      tensors[i].at = at;
      at += tensors[i].bytes;
    }
    close(at);
  }
  // Copies the elements to their places in a record.
  void copy_elements(char* record) const {
    for (uint32_t i = 0; i < head.tensors; ++i) {
      char* to = record + tensors[i].at;
      read(tensors[i], [&](const char* part, uint64_t bytes) {
        std::memcpy(to, part, bytes);
        to += bytes;
      });
    }
  }

 private:
  static bool is_relative(const pto_payload& payload, uint32_t argument) {
    return (payload.relative_args >> argument & 1) != 0;
  }
  // Only tasks of 2026-08 have contexts.
  static bool is_of_2026_08(const pto_payload& payload) {
    return payload.num_args == PTO_CONTEXT_ARGS + 2 && is_relative(payload, PTO_CONTEXT_ARGS + 1);
  }

  // Calls `use` with the parts of a view, as kernels wrote it. Kernels may write to it again, so
  // no line of it may stay in the cache: later loads and partial stores would use the old bytes.
  template <class Use>
  void read(const pto_dump_tensor& view, const Use& use) const {
    memory_.invalidate(view);
    for_each_part(view, 0, reinterpret_cast<const char*>(view.address), use);
    memory_.invalidate(view);
  }

  static pto_dump_tensor described(const pto_tensor_data& tensor) {
    pto_dump_tensor found{};
    const uint64_t element = kElementBytes[tensor.dtype];
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

  static pto_dump_tensor described(const pto_chip_tensor& tensor) {
    pto_dump_tensor found{};
    found.dtype = kTypesOfChipTensors[tensor.dtype];
    const uint64_t element = kElementBytes[found.dtype];
    found.tag = PTO_ANY;
    found.ndims = static_cast<uint8_t>(tensor.ndims);
    found.address = tensor.buffer.addr + tensor.start_offset * element;
    for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
      found.shapes[dim] = tensor.shapes[dim];
      found.strides[dim] = tensor.strides[dim] * element;
    }
    return found;
  }

  void add_tensor(const pto_payload& payload, uint64_t address, uint32_t argument) {
    pto_dump_tensor view;
    pto_buffer buffer;
    if (is_of_2026_08(payload)) {
      const auto& tensor = *reinterpret_cast<const pto_chip_tensor*>(address);
      if (tensor.ndims > PTO_MAX_DIMS || tensor.dtype >= sizeof kTypesOfChipTensors) return;
      view = described(tensor);
      buffer = tensor.buffer;
    } else {
      const auto& tensor = *reinterpret_cast<const pto_tensor_data*>(address);
      const bool is_valid = tensor.ndims <= PTO_MAX_DIMS && tensor.dtype < PTO_DTYPE_COUNT;
      if (!is_valid || is_key(tensor)) return;
      view = described(tensor);
      buffer = tensor.buffer;
    }
    view.buffer = buffer.addr;
    view.buffer_bytes = buffer.size;
    view.argument = argument;
    view.bytes = kElementBytes[view.dtype];
    uint64_t last = view.address + view.bytes;
    for (uint32_t dim = 0; dim < view.ndims; ++dim) {
      view.bytes *= view.shapes[dim];
      last += (view.shapes[dim] - 1) * view.strides[dim];
    }
    if (view.bytes != 0 && memory_.contains(view.address, last)) tensors[head.tensors++] = view;
  }

  void add_buffer(uint64_t address, uint32_t argument) {
    pto_dump_tensor view{};
    uint64_t end = 0;
    if (!memory_.find_buffer(address, &view.address, &end)) return;
    for (uint32_t i = 0; i < head.tensors; ++i) {
      if (tensors[i].address == view.address) return;
    }
    view.buffer = view.address;
    view.bytes = view.buffer_bytes = view.shapes[0] = end - view.address;
    view.strides[0] = 1;
    view.argument = argument;
    view.dtype = PTO_DTYPE_UINT8;
    view.ndims = 1;
    view.tag = PTO_ANY;
    tensors[head.tensors++] = view;
  }

  uint64_t elements_begin() const {
    return sizeof head + head.tensors * sizeof tensors[0] + head.name + head.library + head.payload;
  }
  void close(uint64_t end) { head.bytes = (end + 7) & ~uint64_t{7}; }

  // The data types of 2026-08, by their published codes; those without an equal are bytes.
  static constexpr uint8_t kTypesOfChipTensors[] = {
      PTO_DTYPE_FLOAT32,       PTO_DTYPE_FLOAT16, PTO_DTYPE_INT32,    PTO_DTYPE_INT16,
      PTO_DTYPE_INT8,          PTO_DTYPE_UINT8,   PTO_DTYPE_BFLOAT16, PTO_DTYPE_INT64,
      PTO_DTYPE_UINT64,        PTO_DTYPE_UINT16,  PTO_DTYPE_UINT32,   PTO_DTYPE_BOOL,
      PTO_DTYPE_FLOAT8_E4M3FN, PTO_DTYPE_UINT8,   PTO_DTYPE_UINT8};

  const Memory& memory_;

 public:
  pto_dump_record head;
  pto_dump_tensor tensors[PTO_MAX_KERNEL_ARGS];
};

}  // namespace pto::engine
