// x = 2 * x + number for each element of a contiguous tensor of float or int32
#include <cstdint>

#include "tensor.h"

template <class Element>
static void update(const ChipTensor& tensor, int64_t number) {
  Element* data = reinterpret_cast<Element*>(tensor.buffer.addr) + tensor.start_offset;
  for (uint64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = 2 * data[i] + static_cast<Element>(number);
  }
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const ChipTensor& tensor = *reinterpret_cast<ChipTensor*>(args[0]);
  tensor.dtype == DataType::INT32 ? update<int32_t>(tensor, args[1])
                                  : update<float>(tensor, args[1]);
}
