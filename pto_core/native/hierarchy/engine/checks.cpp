// Checks of a submit. A check throws if it finds an error, and changes nothing.
#include <algorithm>
#include <string>

#include "engine/submission.hpp"

namespace pto::hierarchy {
namespace {

constexpr const char* kKindNames[] = {"NEXT_LEVEL", "SUB"};
constexpr const char* kMore[] = {
    "make the Worker with device_ids, or add some with add_worker",
    "make the Worker with num_sub_workers",
};
constexpr const char* kTagNames[] = {"INPUT", "OUTPUT", "INOUT", "OUTPUT_EXISTING", "NO_DEP"};

std::string list_of(std::span<const int32_t> numbers) {
  std::string text = "[";
  for (const int32_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

void check_pins(const Core& core, const Submission& submission) {
  const std::span<const int32_t> pins = submission.pins;
  if (pins.empty()) return;
  if (pins.size() != submission.members.size()) {
    refuse_usage(std::to_string(pins.size()) + " workers were passed for " +
                 std::to_string(submission.members.size()) + " members; pass one for each member");
  }
  for (size_t at = 0; at < pins.size(); ++at) {
    const int32_t pin = pins[at];
    const bool exists = pin >= 0 && static_cast<uint32_t>(pin) < core.children.size();
    if (exists && core.children[pin].kind == submission.kind) continue;
    std::vector<int32_t> there;
    const uint8_t kind = static_cast<uint8_t>(submission.kind);
    for (const Child* child : core.children.of_kind(kind)) there.push_back(child->number);
    refuse_usage("worker " + std::to_string(pin) + " is not a " + kKindNames[kind] +
                 " child; use one of " + list_of(there));
  }
  for (size_t at = 1; at < pins.size(); ++at) {
    if (std::find(pins.begin(), pins.begin() + static_cast<ptrdiff_t>(at), pins[at]) !=
        pins.begin() + static_cast<ptrdiff_t>(at)) {
      refuse_usage("workers " + list_of(pins) +
                   " contain a child twice; the members of a group need different children");
    }
  }
}

std::string tuple_of(const uint64_t* values, uint32_t dims) {
  std::string text = "(";
  for (uint32_t dim = 0; dim < dims; ++dim) {
    text += (dim > 0 ? ", " : "") + std::to_string(values[dim]);
  }
  return text + (dims == 1 ? ",)" : ")");
}

std::string text_of_box(const Box& box) {
  const uint32_t dims = std::min(box.dims, kMaxDims);
  return "Box(base=" + std::to_string(box.base) +
         ", element_bytes=" + std::to_string(box.element_bytes) +
         ", raw=" + tuple_of(box.raw, dims) + ", low=" + tuple_of(box.low, dims) +
         ", extent=" + tuple_of(box.extent, dims) + ")";
}

// Return whether the box lies inside a valid buffer.
bool fits(const Box& box) {
  if (box.dims < 1 || box.dims > kMaxDims || box.element_bytes < 1) return false;
  uint64_t bytes = box.element_bytes;
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    const bool lies_in = box.extent[dim] >= 1 && box.extent[dim] <= box.raw[dim] &&
                         box.low[dim] <= box.raw[dim] - box.extent[dim];
    if (!lies_in || __builtin_mul_overflow(bytes, box.raw[dim], &bytes)) return false;
  }
  return bytes <= ~box.base;
}

void check_box(const Tensor& tensor) {
  if (fits(*tensor.box)) return;
  refuse_usage(text_of_box(*tensor.box) + " is not a view of its buffer");
}

// Child memory is located by addresses with additional bits set (see locate()), so addresses must
// not use these bits.
void check_child_memory(const Core& core, const Tensor& tensor) {
  if (tensor.child < 0 || static_cast<uint32_t>(tensor.child) >= core.children.size()) {
    refuse_usage("memory of child " + std::to_string(tensor.child) +
                 ", which does not exist; use 0 to " + std::to_string(core.children.size() - 1));
  }
  if (is_allocated(tensor)) refuse_usage("an OUTPUT tensor of a child's memory without an address");
  uint64_t end = tensor.address + tensor.bytes;
  if (tensor.box != nullptr) {
    end = tensor.box->element_bytes;
    for (uint32_t dim = 0; dim < tensor.box->dims; ++dim) end *= tensor.box->raw[dim];
    end += tensor.box->base;
  }
  if (end > kChildMemoryEnd) {
    refuse_usage("memory of child " + std::to_string(tensor.child) + " that ends at " + hex(end) +
                 "; its addresses end at " + hex(kChildMemoryEnd));
  }
}

void check_tensor(const Core& core, const Tensor& tensor) {
  if (tensor.bytes > ~tensor.address) {
    refuse_usage(std::to_string(tensor.bytes) + " bytes at " + hex(tensor.address) +
                 " are not a tensor");
  }
  if (tensor.box != nullptr) check_box(tensor);
  if (tensor.child != kNone) check_child_memory(core, tensor);
  if (tensor.address != 0) return;
  if (tensor.tag != Tag::kOutput && tensor.tag != Tag::kNoDep) {
    refuse_usage(std::string("an ") + kTagNames[static_cast<uint8_t>(tensor.tag)] +
                 " tensor without an address; only OUTPUT is allocated");
  }
  if (tensor.box != nullptr) refuse_usage("a view of a buffer that is not allocated yet");
}

// Return a value that is added to the addresses of one child's memory, so that they differ from the
// addresses of host memory and of other children.
constexpr uint64_t window_of(int32_t child) {
  if (child == kNone) return 0;
  return uint64_t{1} << 61 | static_cast<uint64_t>(child) * kChildMemoryEnd;
}

}  // namespace

void check_submission(const Core& core, const Submission& submission) {
  const size_t count = submission.members.size();
  const uint8_t kind = static_cast<uint8_t>(submission.kind);
  const size_t children = core.children.of_kind(kind).size();
  if (count < 1) refuse_usage("a task without members; pass arguments for at least one member");
  if (children == 0) {
    refuse_usage(std::string("a task for ") + kKindNames[kind] + " children, but there are none; " +
                 kMore[kind]);
  }
  if (count > children) {
    refuse_usage("a group of " + std::to_string(count) + " members for " +
                 std::to_string(children) + " " + kKindNames[kind] +
                 " children; use a smaller group or add children");
  }
  if (submission.retries < 0) {
    refuse_usage("retries " + std::to_string(submission.retries) + ", timeout " +
                 std::to_string(submission.timeout_ms) + " ms: pass 0 or more");
  }
  check_pins(core, submission);
  for (const Member& member : submission.members) {
    for (const Tensor& tensor : member.tensors) check_tensor(core, tensor);
  }
}

void locate(engine::Region& region, const Tensor& tensor) {
  const uint64_t window = window_of(tensor.child);
  if (tensor.bytes == 0) {
    region.begin = region.end = window + tensor.address;
    return;
  }
  if (tensor.box == nullptr) return region.set_range(window + tensor.address, tensor.bytes);
  const Box& box = *tensor.box;
  uint64_t first = box.base;
  uint64_t bytes = box.element_bytes;
  uint64_t stride = box.element_bytes;
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    first += box.low[dim] * stride;
    bytes *= box.extent[dim];
    stride *= box.raw[dim];
  }
  if (tensor.address != first || tensor.bytes != bytes) {
    refuse_usage("a tensor of " + std::to_string(tensor.bytes) + " bytes at " +
                 hex(tensor.address) + " has a box of " + std::to_string(bytes) + " bytes at " +
                 hex(first));
  }
  engine::RegionBuilder builder(region, window + first, box.element_bytes, kNone);
  for (uint32_t dim = 0; dim < box.dims; ++dim) {
    builder.add(box.raw[dim], box.low[dim], box.extent[dim]);
  }
  builder.finish();
}

}  // namespace pto::hierarchy
