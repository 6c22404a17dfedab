// Writes what a kernel reads in the fields of its first tensor.
#include "intrinsic.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const ChipTensor& tensor = *reinterpret_cast<const ChipTensor*>(args[0]);
  int64_t* out = reinterpret_cast<const ChipTensor*>(args[1])->data_as<int64_t>();
  *out++ = static_cast<int64_t>(tensor.buffer.size);
  *out++ = static_cast<int64_t>(tensor.owner_task_id.raw);
  *out++ = static_cast<int64_t>(tensor.start_offset);
  *out++ = tensor.version;
  *out++ = tensor.ndims;
  *out++ = static_cast<int64_t>(tensor.dtype);
  *out++ = tensor.manual_dep;
  *out++ = tensor.is_contiguous;
  *out++ = static_cast<int64_t>(tensor.address_space);
  *out++ = static_cast<int64_t>(tensor.extent_elem_cache);
  *out++ = static_cast<int64_t>(tensor.nbytes());
  for (uint32_t i = 0; i < tensor.ndims; ++i) *out++ = tensor.strides[i];
  for (int i = 2; i < 9; ++i) *out++ = args[i];
}
