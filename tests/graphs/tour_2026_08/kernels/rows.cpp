// Each block adds its number to its row.
#include "elements.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const auto block = static_cast<uint32_t>(get_block_idx(args));
  add_to_rows(tensor(args, 0), block, block + 1, static_cast<float>(block));
}
