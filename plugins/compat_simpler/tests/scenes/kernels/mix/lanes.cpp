// One number in a cache line of its own for each lane of each block.
#include <cstdint>

#include "intrinsic.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
#ifdef __DAV_CUBE__
  const int32_t lane = 0;
#endif
#ifdef __DAV_VEC__
  const int32_t lane = 1 + get_sub_block_id(args);
#endif
  const int32_t block = get_block_idx(args);
  __gm__ float* to = reinterpret_cast<__gm__ float*>(out->buffer.addr) + out->start_offset;
  to[(block * 3 + lane) * 16] =
      static_cast<float>(args[1] + 10 * block + lane + 1000 * get_block_num(args));
}
