// Runs on an AICPU thread: submits QK -> SF -> PV -> UP for every block. The runtime derives the
// edges from the tensors: the running state of each chain is an output of its first UP and INOUT of
// the others. The intermediates of a chain stay in the heap ring until the scope of the chain has
// ended.

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "pto_orchestration_api.h"

namespace {

enum Function { kQueryKey = 0, kSoftmax = 1, kWeightsValue = 2, kUpdate = 3 };

// The arguments, in the order of golden.py; the first six are device addresses.
struct Arguments {
  uint64_t query, key_cache, value_cache, block_table, contexts, out;
  uint64_t batch, heads, kv_heads, head_dim, block_size, block_count, table_width, scale;

  uint64_t group() const { return heads / kv_heads; }  // query heads that share a key head

  uint64_t cache_block(uint64_t sequence, uint64_t block) const {
    const int32_t* table = reinterpret_cast<const int32_t*>(block_table);
    return static_cast<uint64_t>(table[sequence * table_width + block]);
  }
  uint64_t context_of(uint64_t sequence) const {
    return static_cast<uint64_t>(reinterpret_cast<const int32_t*>(contexts)[sequence]);
  }
};

Tensor external(uint64_t address, std::initializer_list<uint64_t> shape, DataType dtype) {
  return make_tensor_external(reinterpret_cast<void*>(address), shape.begin(), shape.size(), dtype);
}

struct Attention {
  PTO2Runtime* rt;
  const Arguments& in;
  Tensor query, key_cache, value_cache, out;

  // The running softmax of one sequence and head group.
  struct Chain {
    uint64_t sequence, kv_head;
    Tensor query, out, running_max, running_sum, running_out;
  };

  void submit_chain(uint64_t sequence, uint64_t kv_head);
  void submit_block(Chain& chain, uint64_t block, bool last);
  void submit_update(Chain& chain, Tensor& block_max, Tensor& block_sum, Tensor& partial,
                     bool first, bool last);
};

void Attention::submit_chain(uint64_t sequence, uint64_t kv_head) {
  const uint64_t group = in.group();
  const uint64_t rows[] = {group, in.head_dim};
  const uint64_t offsets[] = {sequence * in.heads + kv_head * group, 0};
  Chain chain{sequence,
              kv_head,
              query.view(rows, offsets),
              out.view(rows, offsets),
              make_tensor(rows, 1),
              make_tensor(rows, 1),
              make_tensor(rows, 2)};
  const uint64_t blocks = (in.context_of(sequence) + in.block_size - 1) / in.block_size;
  for (uint64_t block = 0; block < blocks; ++block) {
    submit_block(chain, block, block + 1 == blocks);
  }
}

void Attention::submit_block(Chain& chain, uint64_t block, bool last) {
  const uint64_t group = in.group();
  const uint64_t tokens =
      std::min(in.block_size, in.context_of(chain.sequence) - block * in.block_size);
  const uint64_t cached_shape[] = {1, tokens, 1, in.head_dim};
  const uint64_t cached_at[] = {in.cache_block(chain.sequence, block), 0, chain.kv_head, 0};
  Tensor key = key_cache.view(cached_shape, cached_at);
  Tensor value = value_cache.view(cached_shape, cached_at);

  const uint64_t scores_shape[] = {group, in.block_size};
  const uint64_t partial_shape[] = {group, in.head_dim};
  Tensor scores = make_tensor(scores_shape, 2), weights = make_tensor(scores_shape, 2);
  Tensor block_max = make_tensor(scores_shape, 1), block_sum = make_tensor(scores_shape, 1);
  Tensor partial = make_tensor(partial_shape, 2);

  PTOParam qk[] = {make_input_param(chain.query), make_input_param(key), make_output_param(scores)};
  pto2_rt_submit_task(rt, kQueryKey, PTO2_WORKER_CUBE, qk, 3);
  PTOParam sf[] = {make_input_param(scores),     make_output_param(weights),
                   make_output_param(block_max), make_output_param(block_sum),
                   make_scalar_param(tokens),    make_scalar_param(in.scale)};
  pto2_rt_submit_task(rt, kSoftmax, PTO2_WORKER_VECTOR, sf, 6);
  PTOParam pv[] = {make_input_param(weights), make_input_param(value), make_output_param(partial)};
  pto2_rt_submit_task(rt, kWeightsValue, PTO2_WORKER_CUBE, pv, 3);
  submit_update(chain, block_max, block_sum, partial, block == 0, last);
}

void Attention::submit_update(Chain& chain, Tensor& block_max, Tensor& block_sum, Tensor& partial,
                              bool first, bool last) {
  const auto running = [first](Tensor& state) {
    return first ? make_output_param(state) : make_inout_param(state);
  };
  PTOParam up[] = {
      make_input_param(block_max),  make_input_param(block_sum), make_input_param(partial),
      running(chain.running_max),   running(chain.running_sum),  running(chain.running_out),
      make_output_param(chain.out), make_scalar_param(first),    make_scalar_param(last)};
  pto2_rt_submit_task(rt, kUpdate, PTO2_WORKER_VECTOR, up, 9);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 14;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const Arguments in{args[0], args[1], args[2], args[3],  args[4],  args[5],  args[6],
                     args[7], args[8], args[9], args[10], args[11], args[12], args[13]};
  const uint64_t heads = in.batch * in.heads;
  const std::initializer_list<uint64_t> cache = {in.block_count, in.block_size, in.kv_heads,
                                                 in.head_dim};
  Attention attention{rt,
                      in,
                      external(in.query, {heads, in.head_dim}, DataType::BFLOAT16),
                      external(in.key_cache, cache, DataType::BFLOAT16),
                      external(in.value_cache, cache, DataType::BFLOAT16),
                      external(in.out, {heads, in.head_dim}, DataType::FLOAT32)};
  for (uint64_t sequence = 0; sequence < in.batch; ++sequence) {
    for (uint64_t kv_head = 0; kv_head < in.kv_heads; ++kv_head) {
      PTO2_SCOPE(rt) {
        attention.submit_chain(sequence, kv_head);
      }
    }
  }
}
