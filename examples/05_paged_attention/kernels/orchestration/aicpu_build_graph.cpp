// Runs on an AICPU thread: reads the block table and the context lengths in device memory, and
// builds QK -> SF -> PV -> UP for every block. The UPs of one sequence and head group form a chain.
// The first blocks are computed while the last ones are being added.

#include <algorithm>
#include <cstdint>

#include "runtime.h"

namespace {

enum Function { kQueryKey = 0, kSoftmax = 1, kWeightsValue = 2, kUpdate = 3 };

constexpr uint64_t kBfloat16Bytes = 2;
constexpr uint64_t kFloatBytes = sizeof(float);

// The arguments, in the order of golden.py; the first six are device addresses.
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

// The results of each block, and the running state of each chain.
struct Scratch {
  uint64_t scores, weights, block_max, block_sum, partial;
  uint64_t running_max, running_sum, running_out;
};

bool prepare(Runtime* runtime, const Arguments& in, Scratch& scratch) {
  // One row per query head and block, so that no block waits for another block's scratch memory.
  const uint64_t rows = in.block_count * in.heads, chains = in.batch * in.heads;
  const struct {
    uint64_t* address;
    uint64_t elements;
  } buffers[] = {
      {&scratch.scores, rows * in.block_size},
      {&scratch.weights, rows * in.block_size},
      {&scratch.block_max, rows},
      {&scratch.block_sum, rows},
      {&scratch.partial, rows * in.head_dim},
      {&scratch.running_max, chains},
      {&scratch.running_sum, chains},
      {&scratch.running_out, chains * in.head_dim},
  };
  for (const auto& buffer : buffers) {
    void* memory = runtime->aicpu_build_api.device_malloc(buffer.elements * kFloatBytes);
    if (memory == nullptr) return false;
    *buffer.address = reinterpret_cast<uint64_t>(memory);
  }
  return true;
}

// Adds a task that follows the `after` tasks (-1: none), and publishes it.
int add(Runtime* runtime, uint64_t* args, int count, int function, CoreType core, int after,
        int also_after = -1) {
  const auto& api = runtime->aicpu_build_api;
  const int task = api.add_task(runtime, args, count, function, core, 0);
  if (after >= 0) api.add_successor_conditional(runtime, after, task);
  if (also_after >= 0) api.add_successor_conditional(runtime, also_after, task);
  api.publish_task(runtime, task);
  return task;
}

// Adds the tasks of one block; returns its UP, which follows `previous_update` (-1 for the first
// block). `row` is the first of the block's scratch rows.
int build_block(Runtime* runtime, const Arguments& in, const Scratch& scratch, uint64_t sequence,
                uint64_t kv_head, uint64_t block, uint64_t row, int previous_update) {
  const uint64_t group = in.group(), dim = in.head_dim, size = in.block_size;
  const uint64_t pitch = in.kv_heads * dim;  // distance between two tokens of the cache
  const uint64_t tokens = std::min(size, in.context_of(sequence) - block * size);
  const uint64_t first = block == 0, last = block + 1 == in.blocks_of(sequence);

  const uint64_t head = sequence * in.heads + kv_head * group;  // first query head of the group
  const uint64_t cache_block = static_cast<uint64_t>(in.table_of(sequence)[block]);
  const uint64_t cached = (cache_block * size * pitch + kv_head * dim) * kBfloat16Bytes;

  const uint64_t scores = scratch.scores + row * size * kFloatBytes;
  const uint64_t weights = scratch.weights + row * size * kFloatBytes;
  const uint64_t block_max = scratch.block_max + row * kFloatBytes;
  const uint64_t block_sum = scratch.block_sum + row * kFloatBytes;
  const uint64_t partial = scratch.partial + row * dim * kFloatBytes;

  uint64_t qk[] = {in.query + head * dim * kBfloat16Bytes,
                   in.key_cache + cached,
                   scores,
                   group,
                   tokens,
                   dim,
                   pitch,
                   size};
  uint64_t sf[] = {scores, weights, block_max, block_sum, group, tokens, size, in.scale};
  uint64_t pv[] = {weights, in.value_cache + cached, partial, group, tokens, dim, pitch, size};
  uint64_t up[] = {block_max,
                   block_sum,
                   partial,
                   scratch.running_max + head * kFloatBytes,
                   scratch.running_sum + head * kFloatBytes,
                   scratch.running_out + head * dim * kFloatBytes,
                   in.out + head * dim * kFloatBytes,
                   group,
                   dim,
                   first,
                   last};
  const int qk_task = add(runtime, qk, 8, kQueryKey, CoreType::AIC, -1);
  const int sf_task = add(runtime, sf, 8, kSoftmax, CoreType::AIV, qk_task);
  const int pv_task = add(runtime, pv, 8, kWeightsValue, CoreType::AIC, sf_task);
  return add(runtime, up, 11, kUpdate, CoreType::AIV, pv_task, previous_update);
}

}  // namespace

extern "C" int build_paged_attention(Runtime* runtime) {
  if (runtime->orch_argc != 14) return -1;
  const auto& args = runtime->orch_args;
  const Arguments in{args[0], args[1], args[2], args[3],  args[4],  args[5],  args[6],
                     args[7], args[8], args[9], args[10], args[11], args[12], args[13]};
  Scratch scratch{};
  if (!prepare(runtime, in, scratch)) return -1;
  uint64_t row = 0;
  for (uint64_t sequence = 0; sequence < in.batch; ++sequence) {
    for (uint64_t kv_head = 0; kv_head < in.kv_heads; ++kv_head) {
      int update = -1;
      for (uint64_t block = 0; block < in.blocks_of(sequence); ++block, row += in.group()) {
        update = build_block(runtime, in, scratch, sequence, kv_head, block, row, update);
      }
    }
  }
  return 0;
}
