// Runs on an AICPU thread. A chunk is up to 16 sequences and 16 heads. Each chunk has its own
// scope, so that its memory and its task slots are released while later chunks are still being
// submitted.

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "pto_orchestration_api.h"

namespace {

enum Function { kHub = 0, kQueryKey = 1, kSoftmax = 2, kWeightsValue = 3, kUpdate = 4 };

constexpr uint64_t kInCoreBatch = 16;  // sequences per chunk
constexpr uint64_t kHeadTile = 16;     // heads per chunk

// The arguments, in the order of golden.py; the first six are device addresses.
struct Arguments {
  uint64_t query, key_cache, value_cache, block_table, contexts, out;
  uint64_t batch, heads, head_dim, block_size, block_count, table_width, scale;

  // Returns the number of blocks of the longest of `count` sequences.
  uint64_t most_blocks(uint64_t first, uint64_t count) const {
    const int32_t* lengths = reinterpret_cast<const int32_t*>(contexts) + first;
    const int32_t longest = *std::max_element(lengths, lengths + count);
    return (static_cast<uint64_t>(longest) + block_size - 1) / block_size;
  }
};

using Shape = std::initializer_list<uint64_t>;

Tensor external(uint64_t address, Shape shape, DataType dtype) {
  return make_tensor_external(reinterpret_cast<void*>(address), shape.begin(), shape.size(), dtype);
}

Tensor intermediate(Shape shape) {
  return make_tensor(shape.begin(), shape.size());
}

Tensor part(Tensor& whole, Shape shape, Shape offsets) {
  return whole.view(shape.begin(), offsets.begin());
}

// The views of one chunk and its running softmax.
struct Chunk {
  uint64_t first, batch, rows;  // number of rows: one for each sequence and head
  Tensor query, contexts, out;
  Tensor running_max, running_sum, running_out;
};

class Attention {
 public:
  Attention(PTO2Runtime* rt, const Arguments& in)
      : rt_(rt),
        in_(in),
        query_(external(in.query, {in.batch, in.heads, in.head_dim}, DataType::BFLOAT16)),
        key_cache_(cache_tensor(in.key_cache, in)),
        value_cache_(cache_tensor(in.value_cache, in)),
        block_table_(external(in.block_table, {in.batch, in.table_width}, DataType::INT32)),
        contexts_(external(in.contexts, {in.batch}, DataType::INT32)),
        out_(external(in.out, {in.batch, in.heads, in.head_dim}, DataType::FLOAT32)) {}

  void submit_chunk(uint64_t first, uint64_t head);

 private:
  static Tensor cache_tensor(uint64_t address, const Arguments& in);
  void submit_hub(Chunk& chunk);
  void submit_block(Chunk& chunk, uint64_t block, bool last);

  PTO2Runtime* rt_;
  const Arguments& in_;
  Tensor query_, key_cache_, value_cache_, block_table_, contexts_, out_;
};

Tensor Attention::cache_tensor(uint64_t address, const Arguments& in) {
  return external(address, {in.block_count, in.block_size, 1, in.head_dim}, DataType::BFLOAT16);
}

void Attention::submit_chunk(uint64_t first, uint64_t head) {
  const uint64_t batch = std::min(kInCoreBatch, in_.batch - first);
  const uint64_t heads = std::min(kHeadTile, in_.heads - head), rows = batch * heads;
  Chunk chunk{first,
              batch,
              rows,
              part(query_, {batch, heads, in_.head_dim}, {first, head, 0}),
              part(contexts_, {batch}, {first}),
              part(out_, {batch, heads, in_.head_dim}, {first, head, 0}),
              intermediate({rows}),
              intermediate({rows}),
              intermediate({rows, in_.head_dim})};
  submit_hub(chunk);
  const uint64_t blocks = in_.most_blocks(first, batch);
  for (uint64_t block = 0; block < blocks; ++block) submit_block(chunk, block, block + 1 == blocks);
}

void Attention::submit_hub(Chunk& chunk) {
  PTOParam hub[] = {make_output_param(chunk.running_max), make_output_param(chunk.running_sum),
                    make_output_param(chunk.running_out)};
  pto2_rt_submit_task(rt_, kHub, PTO2_WORKER_VECTOR, hub, 3);
}

void Attention::submit_block(Chunk& chunk, uint64_t block, bool last) {
  Tensor table = part(block_table_, {chunk.batch, 1}, {chunk.first, block});
  Tensor scores = intermediate({chunk.rows, in_.block_size});
  Tensor weights = intermediate({chunk.rows, in_.block_size});
  Tensor block_max = intermediate({chunk.rows}), block_sum = intermediate({chunk.rows});
  Tensor partial = intermediate({chunk.rows, in_.head_dim});

  PTOParam qk[] = {make_input_param(chunk.query), make_input_param(key_cache_),
                   make_input_param(table),       make_input_param(chunk.contexts),
                   make_output_param(scores),     make_scalar_param(block)};
  pto2_rt_submit_task(rt_, kQueryKey, PTO2_WORKER_CUBE, qk, 6);
  PTOParam sf[] = {make_input_param(scores),     make_input_param(chunk.contexts),
                   make_output_param(weights),   make_output_param(block_max),
                   make_output_param(block_sum), make_scalar_param(block),
                   make_scalar_param(in_.scale)};
  pto2_rt_submit_task(rt_, kSoftmax, PTO2_WORKER_VECTOR, sf, 7);
  PTOParam pv[] = {make_input_param(weights),  make_input_param(value_cache_),
                   make_input_param(table),    make_input_param(chunk.contexts),
                   make_output_param(partial), make_scalar_param(block)};
  pto2_rt_submit_task(rt_, kWeightsValue, PTO2_WORKER_CUBE, pv, 6);
  PTOParam up[] = {make_input_param(block_max),         make_input_param(block_sum),
                   make_input_param(partial),           make_inout_param(chunk.running_max),
                   make_inout_param(chunk.running_sum), make_inout_param(chunk.running_out),
                   make_output_param(chunk.out),        make_scalar_param(last)};
  pto2_rt_submit_task(rt_, kUpdate, PTO2_WORKER_VECTOR, up, 8);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 13;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const Arguments in{args[0], args[1], args[2], args[3],  args[4],  args[5], args[6],
                     args[7], args[8], args[9], args[10], args[11], args[12]};
  Attention attention(rt, in);
  for (uint64_t head = 0; head < in.heads; head += kHeadTile) {
    for (uint64_t first = 0; first < in.batch; first += kInCoreBatch) {
      PTO2_SCOPE(rt) {
        attention.submit_chunk(first, head);
      }
    }
  }
}
