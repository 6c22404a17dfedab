// The kernel of random programs: it reads its inputs and writes its outputs.
//
// Arguments: the number of tensors, a salt, the tensors (of uint32) and, for a block task,
// block_dim and block_id; each block writes only its own elements. The specification is the
// computation in random_program.py.
#include <cstdint>

#include "tensor.h"

namespace {

// The elements of a view, by their index in row-major order of the view's shape.
class Elements {
 public:
  explicit Elements(const TensorData& tensor) : tensor_(tensor) {
    for (uint32_t dim = 0; dim < tensor.ndims; ++dim) {
      count_ *= tensor.shapes[dim];
      stride_[dim] = 1;
      for (uint32_t other = 0; other < tensor.ndims; ++other) {
        if (tensor.order[other] > tensor.order[dim]) stride_[dim] *= tensor.raw_shapes[other];
      }
    }
  }

  uint32_t count() const { return count_; }

  uint32_t& operator[](uint32_t place) const {
    uint64_t offset = tensor_.start_offset;
    for (uint32_t dim = tensor_.ndims; dim-- > 0; place /= tensor_.shapes[dim]) {
      offset += place % tensor_.shapes[dim] * stride_[dim];
    }
    return reinterpret_cast<uint32_t*>(tensor_.buffer.addr)[offset];
  }

 private:
  const TensorData& tensor_;
  uint64_t stride_[RUNTIME_MAX_TENSOR_DIMS];
  uint32_t count_ = 1;
};

constexpr uint32_t kInput = 0, kInout = 2, kNoDep = 4;

}  // namespace

extern "C" void kernel_entry(int64_t* args) {
  const int64_t tensors = args[0] & 0xff;
  const bool is_block = (args[0] & 0x100) != 0;
  const uint32_t blocks = is_block ? static_cast<uint32_t>(args[2 + tensors]) : 1;
  const uint32_t block = is_block ? static_cast<uint32_t>(args[3 + tensors]) : 0;
  uint32_t sum = static_cast<uint32_t>(args[1]);
  for (int64_t index = 0; index < tensors; ++index) {
    const auto& tensor = *reinterpret_cast<const TensorData*>(args[2 + index]);
    if (tensor.tag != kInput && tensor.tag != kNoDep) continue;
    const Elements elements(tensor);
    for (uint32_t i = 0; i < elements.count(); ++i) sum += (elements[i] + 1) * (2 * i + 1);
  }
  for (int64_t index = 0; index < tensors; ++index) {
    const auto& tensor = *reinterpret_cast<const TensorData*>(args[2 + index]);
    if (tensor.tag == kInput || tensor.tag == kNoDep) continue;
    const Elements elements(tensor);
    for (uint32_t i = block; i < elements.count(); i += blocks) {
      elements[i] = (tensor.tag == kInout ? 3 * elements[i] : 0) + sum + 7 * i;
    }
  }
}
