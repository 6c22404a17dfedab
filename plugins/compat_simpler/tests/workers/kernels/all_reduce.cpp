// Sum the inputs of all ranks: publish the own input in the window, raise the flag, read all peers.
#include "platform_comm/comm_context.h"
#include "tensor.h"

extern "C" __aicore__ void kernel_entry(__gm__ int64_t* args) {
  const __gm__ ChipTensor* in = reinterpret_cast<__gm__ ChipTensor*>(args[0]);
  const __gm__ ChipTensor* data = reinterpret_cast<__gm__ ChipTensor*>(args[1]);
  const __gm__ ChipTensor* flags = reinterpret_cast<__gm__ ChipTensor*>(args[2]);
  const __gm__ ChipTensor* out = reinterpret_cast<__gm__ ChipTensor*>(args[3]);
  const __gm__ CommContext* context = reinterpret_cast<__gm__ CommContext*>(args[4]);
  const int32_t round = static_cast<int32_t>(args[5]);
  const uint64_t own = context->windowsIn[context->rankId];
  float* mine = data->data_as<float>();
  float* sum = out->data_as<float>();
  for (uint64_t i = 0; i < in->numel(); ++i) mine[i] = in->data_as<float>()[i];
  __atomic_store_n(flags->data_as<int32_t>(), round, __ATOMIC_RELEASE);
  for (uint64_t i = 0; i < out->numel(); ++i) sum[i] = 0;
  for (uint32_t rank = 0; rank < context->rankNum; ++rank) {
    const uint64_t peer = context->windowsIn[rank];
    auto* flag = reinterpret_cast<int32_t*>(flags->buffer.addr - own + peer) + flags->start_offset;
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != round) {
    }
    auto* theirs = reinterpret_cast<float*>(data->buffer.addr - own + peer) + data->start_offset;
    for (uint64_t i = 0; i < out->numel(); ++i) sum[i] += theirs[i];
  }
}
