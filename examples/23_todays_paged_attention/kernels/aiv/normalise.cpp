// out = mean / sum; each block has one head.
#include "intrinsic.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto tensor = [args](int index) -> const ChipTensor& {
    return *reinterpret_cast<__gm__ ChipTensor*>(args[index]);
  };
  const auto head = static_cast<uint32_t>(get_block_idx(args));
  const uint32_t dim = tensor(0).shapes[1];
  for (uint32_t i = head * dim; i < (head + 1) * dim; ++i) {
    tensor(2).data_as<float>()[i] =
        tensor(0).data_as<float>()[i] / tensor(1).data_as<float>()[head];
  }
}
