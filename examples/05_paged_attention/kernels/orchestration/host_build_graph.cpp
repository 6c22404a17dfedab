// Runs on the host: reads the block table and the context lengths in host memory, moves the
// tensors, and builds QK -> SF -> PV -> UP for every block. The UPs of one sequence and head group
// form a chain.

#include <algorithm>
#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kQueryKey = 0, kSoftmax = 1, kWeightsValue = 2, kUpdate = 3 };

constexpr uint64_t kBfloat16Bytes = 2;
constexpr uint64_t kFloatBytes = sizeof(float);

// The arguments, in the order of golden.py; the first six are host addresses.
struct Arguments {
  uint64_t query, key_cache, value_cache, block_table, contexts, out;
  uint64_t batch, heads, kv_heads, head_dim, block_size, block_count, table_width, scale;

  uint64_t group() const { return heads / kv_heads; }  // query heads that share a key head

  const int32_t* table_of(uint64_t sequence) const {
    return reinterpret_cast<const int32_t*>(block_table) + sequence * table_width;
  }
  uint64_t context_of(uint64_t sequence) const {
    return static_cast<uint64_t>(reinterpret_cast<const int32_t*>(contexts)[sequence]);
  }
  uint64_t blocks_of(uint64_t sequence) const {
    return (context_of(sequence) + block_size - 1) / block_size;
  }
};

// Device addresses: the tensors, the results of each block, and the running state of each chain.
struct Buffers {
  uint64_t query, key_cache, value_cache, out;
  uint64_t scores, weights, block_max, block_sum, partial;
  uint64_t running_max, running_sum, running_out;
};

uint64_t allocate(Runtime* runtime, uint64_t bytes) {
  return reinterpret_cast<uint64_t>(runtime->host_api.device_malloc(bytes));
}

// Returns 0 if memory is exhausted or the copy fails.
uint64_t copy_in(Runtime* runtime, uint64_t host, uint64_t bytes) {
  void* device = runtime->host_api.device_malloc(bytes);
  if (device == nullptr) return 0;
  const void* source = reinterpret_cast<const void*>(host);
  if (runtime->host_api.copy_to_device(device, source, bytes) != 0) return 0;
  return reinterpret_cast<uint64_t>(device);
}

bool prepare(Runtime* runtime, const Arguments& in, Buffers& device) {
  const uint64_t query_elements = in.batch * in.heads * in.head_dim;
  const uint64_t cache_bytes =
      in.block_count * in.block_size * in.kv_heads * in.head_dim * kBfloat16Bytes;
  device.query = copy_in(runtime, in.query, query_elements * kBfloat16Bytes);
  device.key_cache = copy_in(runtime, in.key_cache, cache_bytes);
  device.value_cache = copy_in(runtime, in.value_cache, cache_bytes);
  device.out = allocate(runtime, query_elements * kFloatBytes);

  // One row per query head and block, so that no block waits for another block's scratch memory.
  const uint64_t rows = in.block_count * in.heads;
  device.scores = allocate(runtime, rows * in.block_size * kFloatBytes);
  device.weights = allocate(runtime, rows * in.block_size * kFloatBytes);
  device.block_max = allocate(runtime, rows * kFloatBytes);
  device.block_sum = allocate(runtime, rows * kFloatBytes);
  device.partial = allocate(runtime, rows * in.head_dim * kFloatBytes);
  device.running_max = allocate(runtime, in.batch * in.heads * kFloatBytes);
  device.running_sum = allocate(runtime, in.batch * in.heads * kFloatBytes);
  device.running_out = allocate(runtime, query_elements * kFloatBytes);
  for (uint64_t address :
       {device.query, device.key_cache, device.value_cache, device.out, device.scores,
        device.weights, device.block_max, device.block_sum, device.partial, device.running_max,
        device.running_sum, device.running_out}) {
    if (address == 0) return false;
  }
  runtime->record_tensor_pair(reinterpret_cast<void*>(in.out), reinterpret_cast<void*>(device.out),
                              query_elements * kFloatBytes);
  return true;
}

// Adds the tasks of one block; returns its UP, which follows `previous_update` (-1 for the first
// block). `row` is the first of the block's scratch rows.
int build_block(Runtime* runtime, const Arguments& in, const Buffers& device, uint64_t sequence,
                uint64_t kv_head, uint64_t block, uint64_t row, int previous_update) {
  const uint64_t group = in.group(), dim = in.head_dim, size = in.block_size;
  const uint64_t pitch = in.kv_heads * dim;  // distance between two tokens of the cache
  const uint64_t tokens = std::min(size, in.context_of(sequence) - block * size);
  const uint64_t first = block == 0, last = block + 1 == in.blocks_of(sequence);

  const uint64_t head = sequence * in.heads + kv_head * group;  // first query head of the group
  const uint64_t query = device.query + head * dim * kBfloat16Bytes;
  const uint64_t out = device.out + head * dim * kFloatBytes;
  const uint64_t running_max = device.running_max + head * kFloatBytes;
  const uint64_t running_sum = device.running_sum + head * kFloatBytes;
  const uint64_t running_out = device.running_out + head * dim * kFloatBytes;

  const uint64_t cache_block = static_cast<uint64_t>(in.table_of(sequence)[block]);
  const uint64_t cached = (cache_block * size * pitch + kv_head * dim) * kBfloat16Bytes;
  const uint64_t key = device.key_cache + cached;
  const uint64_t value = device.value_cache + cached;

  const uint64_t scores = device.scores + row * size * kFloatBytes;
  const uint64_t weights = device.weights + row * size * kFloatBytes;
  const uint64_t block_max = device.block_max + row * kFloatBytes;
  const uint64_t block_sum = device.block_sum + row * kFloatBytes;
  const uint64_t partial = device.partial + row * dim * kFloatBytes;

  uint64_t qk[] = {query, key, scores, group, tokens, dim, pitch, size};
  uint64_t sf[] = {scores, weights, block_max, block_sum, group, tokens, size, in.scale};
  uint64_t pv[] = {weights, value, partial, group, tokens, dim, pitch, size};
  uint64_t up[] = {block_max, block_sum, partial, running_max, running_sum, running_out,
                   out,       group,     dim,     first,       last};
  const int qk_task = runtime->add_task(qk, 8, kQueryKey, CoreType::AIC);
  const int sf_task = runtime->add_task(sf, 8, kSoftmax, CoreType::AIV);
  const int pv_task = runtime->add_task(pv, 8, kWeightsValue, CoreType::AIC);
  const int up_task = runtime->add_task(up, 11, kUpdate, CoreType::AIV);
  runtime->add_successor(qk_task, sf_task);
  runtime->add_successor(sf_task, pv_task);
  runtime->add_successor(pv_task, up_task);
  if (previous_update >= 0) runtime->add_successor(previous_update, up_task);
  return up_task;
}

}  // namespace

extern "C" int build_paged_attention(Runtime* runtime, uint64_t* args, int arg_count) {
  if (arg_count != 14) return -1;
  const Arguments in{args[0], args[1], args[2], args[3],  args[4],  args[5],  args[6],
                     args[7], args[8], args[9], args[10], args[11], args[12], args[13]};
  Buffers device{};
  if (!prepare(runtime, in, device)) return -1;
  uint64_t row = 0;
  for (uint64_t sequence = 0; sequence < in.batch; ++sequence) {
    for (uint64_t kv_head = 0; kv_head < in.kv_heads; ++kv_head) {
      int update = -1;
      for (uint64_t block = 0; block < in.blocks_of(sequence); ++block, row += in.group()) {
        update = build_block(runtime, in, device, sequence, kv_head, block, row, update);
      }
    }
  }
  return 0;
}
