// Copy the input of rank 0 to all: rank 0 writes to the window of each peer, then raises its flag.
#include "platform_comm/comm_context.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ ChipTensor* in = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  const __gm__ ChipTensor* data = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  const __gm__ ChipTensor* flags = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  const __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[3]);
  const __gm__ CommContext* context = reinterpret_cast<__gm__ CommContext*>(args[4]);
  const int32_t round = static_cast<int32_t>(args[5]);
  const uint64_t own = context->windowsOut[context->rankId];
  for (uint32_t rank = 0; context->rankId == 0 && rank < context->rankNum; ++rank) {
    const uint64_t peer = context->windowsOut[rank];
    auto* theirs = reinterpret_cast<float*>(data->buffer.addr - own + peer) + data->start_offset;
    auto* flag = reinterpret_cast<int32_t*>(flags->buffer.addr - own + peer) + flags->start_offset;
    for (uint64_t i = 0; i < in->numel(); ++i) theirs[i] = in->data_as<float>()[i];
    __atomic_store_n(flag, round, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(flags->data_as<int32_t>(), __ATOMIC_ACQUIRE) != round) {
  }
  for (uint64_t i = 0; i < out->numel(); ++i) out->data_as<float>()[i] = data->data_as<float>()[i];
}
