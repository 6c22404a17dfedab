// out = in * factor + summand, or a + b, element by element; or the numbers of the block.
#include "intrinsic.h"
#include "tensor.h"

namespace {

float* element(const ChipTensor& tensor, uint64_t index) {
  uint64_t offset = tensor.start_offset;
  for (uint32_t i = tensor.ndims; i-- > 0; index /= tensor.shapes[i]) {
    offset += index % tensor.shapes[i] * tensor.strides[i];
  }
  return reinterpret_cast<float*>(tensor.buffer.addr) + offset;
}

float number(int64_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto tensor = [args](int i) -> const ChipTensor& {
    return *reinterpret_cast<const ChipTensor*>(args[i]);
  };
#if defined(SCALE)
  const ChipTensor& out = tensor(1);
  for (uint64_t i = 0; i < out.numel(); ++i) {
    *element(out, i) = *element(tensor(0), i) * number(args[2]) + number(args[3]);
  }
#elif defined(ADD)
  for (uint64_t i = 0; i < tensor(2).numel(); ++i) {
    *element(tensor(2), i) = *element(tensor(0), i) + *element(tensor(1), i);
  }
#elif defined(LANE) || defined(LANE_OF_CUBE)
  // one number for each lane of each block
#ifdef LANE
  const int32_t lane = 1 + get_sub_block_id(args);
#else
  const int32_t lane = 0;
#endif
  *element(tensor(0), 3 * get_block_idx(args) + lane) =
      static_cast<float>(10 * get_block_idx(args) + lane);
#else
  const int32_t block = get_block_idx(args);
  *element(tensor(0), block) =
      static_cast<float>(100 * get_block_num(args) + block + get_sub_block_id(args));
#endif
}
