// Runs on an AICPU thread: one decoding step of one layer for a batch of 16 sequences. No edge is
// added: heads, columns and cache heads are views, and the runtime orders tasks with overlapping
// views.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "pto_orchestration_api.h"

namespace {

// kernel_config.py has the same numbers.
enum Function {
  kReserve,
  kRmsNorm,
  kMatmul,
  kRotateQuery,
  kAppendKeyValue,
  kStartSoftmax,
  kQueryKey,
  kSoftmax,
  kWeightsValue,
  kUpdate,
  kAdd,
  kGate
};

// The shape of the layer; golden.py has the same numbers.
constexpr uint64_t kBatch = 16, kHeads = 40, kKeyHeads = 8, kDim = 16, kBlockSize = 32;
constexpr uint64_t kGroup = kHeads / kKeyHeads;  // query heads that share a key head
constexpr uint64_t kHidden = kHeads * kDim;
constexpr uint64_t kFfnTile = 64, kFfnTiles = 34, kFfn = kFfnTile * kFfnTiles;
constexpr uint64_t kNormRows = 4;  // sequences that one task normalises
constexpr float kEpsilon = 1e-6f;

using Shape = std::initializer_list<uint64_t>;

Tensor external(uint64_t address, Shape shape, DataType dtype = DataType::FLOAT32) {
  return make_tensor_external(reinterpret_cast<void*>(address), shape.begin(), shape.size(), dtype);
}

Tensor intermediate(Shape shape) {
  return make_tensor(shape.begin(), shape.size());
}

Tensor part(Tensor& whole, Shape shape, Shape offsets) {
  return whole.view(shape.begin(), offsets.begin());
}

// Returns columns `first` to `first + count` of a matrix with `rows` rows.
Tensor columns(Tensor& matrix, uint64_t rows, uint64_t first, uint64_t count) {
  return part(matrix, {rows, count}, {0, first});
}

uint64_t bits(float value) {
  uint32_t pattern;
  std::memcpy(&pattern, &value, sizeof(pattern));
  return pattern;
}

PTOParam in(const Tensor& tensor) {
  return make_input_param(tensor);
}
PTOParam out(const Tensor& tensor) {
  return make_output_param(tensor);
}
PTOParam inout(const Tensor& tensor) {
  return make_inout_param(tensor);
}

class Layer {
 public:
  Layer(PTO2Runtime* rt, const uint64_t* args);
  void submit();

 private:
  void submit_reserve();
  void submit_norm(Tensor& x, Tensor& weight, Tensor& result);
  void submit_projections();
  void submit_attention(uint64_t group);
  void submit_block(uint64_t group, uint64_t block, Tensor (&running)[3]);
  void submit_out_projection();
  void submit_ffn();

  template <size_t N>
  void cube(Function function, PTOParam (&params)[N]) {
    pto2_rt_submit_task(rt_, function, PTO2_WORKER_CUBE, params, N);
  }
  template <size_t N>
  void vector(Function function, PTOParam (&params)[N]) {
    pto2_rt_submit_task(rt_, function, PTO2_WORKER_VECTOR, params, N);
  }
  void matmul(Tensor& x, Tensor w, Tensor result) {
    PTOParam params[] = {in(x), in(w), out(result)};
    cube(kMatmul, params);
  }
  // Submits result = x w + residual for the columns of one tile.
  void matmul_add(Tensor& x, Tensor w, Tensor residual, Tensor result);

  PTO2Runtime* rt_;
  uint64_t block_count_, table_width_, positions_, blocks_;
  Tensor x_, attention_norm_, w_query_, w_key_, w_value_, cosines_, sines_;
  Tensor key_cache_, value_cache_, block_table_, contexts_;
  Tensor w_out_, ffn_norm_, w_gate_, w_up_, w_down_, out_;
  Tensor normed_, query_, key_, value_, ffn_normed_;  // allocated by the first task that fills it
  // Tasks of inner scopes fill these buffers, so kReserve allocates them. The tasks declare their
  // parts INOUT: under raw hazards, a task with an OUTPUT part would not wait for kReserve, which
  // declares that it writes the whole buffer.
  Tensor attention_, residual_, ffn_hidden_;
};

Layer::Layer(PTO2Runtime* rt, const uint64_t* args)
    : rt_(rt),
      block_count_(args[17]),
      table_width_(args[18]),
      positions_(args[19]),
      x_(external(args[0], {kBatch, kHidden})),
      attention_norm_(external(args[1], {kHidden})),
      w_query_(external(args[2], {kHidden, kHidden})),
      w_key_(external(args[3], {kHidden, kKeyHeads * kDim})),
      w_value_(external(args[4], {kHidden, kKeyHeads * kDim})),
      cosines_(external(args[5], {positions_, kDim / 2})),
      sines_(external(args[6], {positions_, kDim / 2})),
      key_cache_(external(args[7], {block_count_, kBlockSize, kKeyHeads, kDim})),
      value_cache_(external(args[8], {block_count_, kBlockSize, kKeyHeads, kDim})),
      block_table_(external(args[9], {kBatch, table_width_}, DataType::INT32)),
      contexts_(external(args[10], {kBatch}, DataType::INT32)),
      w_out_(external(args[11], {kHidden, kHidden})),
      ffn_norm_(external(args[12], {kHidden})),
      w_gate_(external(args[13], {kHidden, kFfn})),
      w_up_(external(args[14], {kHidden, kFfn})),
      w_down_(external(args[15], {kFfn, kHidden})),
      out_(external(args[16], {kBatch, kHidden})),
      normed_(intermediate({kBatch, kHidden})),
      query_(intermediate({kBatch, kHidden})),
      key_(intermediate({kBatch, kKeyHeads * kDim})),
      value_(intermediate({kBatch, kKeyHeads * kDim})),
      ffn_normed_(intermediate({kBatch, kHidden})),
      attention_(intermediate({kBatch, kHidden})),
      residual_(intermediate({kBatch, kHidden})),
      ffn_hidden_(intermediate({kBatch, kFfn})) {
  const int32_t* contexts = reinterpret_cast<const int32_t*>(args[10]);
  const int32_t longest = *std::max_element(contexts, contexts + kBatch);
  blocks_ = (static_cast<uint64_t>(longest) + kBlockSize - 1) / kBlockSize;
}

void Layer::submit() {
  submit_reserve();
  submit_norm(x_, attention_norm_, normed_);
  submit_projections();
  for (uint64_t group = 0; group < kKeyHeads; ++group) {
    PTO2_SCOPE(rt_) {
      submit_attention(group);
    }
  }
  submit_out_projection();
  submit_norm(residual_, ffn_norm_, ffn_normed_);
  submit_ffn();
}

void Layer::submit_reserve() {
  PTOParam params[] = {out(attention_), out(residual_), out(ffn_hidden_)};
  vector(kReserve, params);
}

void Layer::submit_norm(Tensor& x, Tensor& weight, Tensor& result) {
  for (uint64_t row = 0; row < kBatch; row += kNormRows) {
    Tensor rows = part(x, {kNormRows, kHidden}, {row, 0});
    Tensor target = part(result, {kNormRows, kHidden}, {row, 0});
    PTOParam params[] = {in(rows), in(weight), out(target), make_scalar_param(bits(kEpsilon))};
    vector(kRmsNorm, params);
  }
}

void Layer::submit_projections() {
  const auto project = [this](Tensor& weight, Tensor& result, uint64_t heads) {
    for (uint64_t head = 0; head < heads; ++head) {
      matmul(normed_, columns(weight, kHidden, head * kDim, kDim),
             columns(result, kBatch, head * kDim, kDim));
    }
  };
  project(w_query_, query_, kHeads);
  project(w_key_, key_, kKeyHeads);
  project(w_value_, value_, kKeyHeads);
}

void Layer::submit_attention(uint64_t group) {
  Tensor query = columns(query_, kBatch, group * kGroup * kDim, kGroup * kDim);
  PTOParam turn[] = {inout(query), in(cosines_), in(sines_), in(contexts_)};
  vector(kRotateQuery, turn);

  Tensor key = columns(key_, kBatch, group * kDim, kDim);
  Tensor value = columns(value_, kBatch, group * kDim, kDim);
  Tensor keys = part(key_cache_, {block_count_, kBlockSize, 1, kDim}, {0, 0, group, 0});
  Tensor values = part(value_cache_, {block_count_, kBlockSize, 1, kDim}, {0, 0, group, 0});
  PTOParam append[] = {in(key),       in(value),        in(cosines_), in(sines_),
                       in(contexts_), in(block_table_), inout(keys),  inout(values)};
  vector(kAppendKeyValue, append);

  const uint64_t rows = kBatch * kGroup;
  Tensor running[] = {intermediate({rows}), intermediate({rows}), intermediate({rows, kDim})};
  PTOParam start[] = {out(running[0]), out(running[1]), out(running[2])};
  vector(kStartSoftmax, start);
  for (uint64_t block = 0; block < blocks_; ++block) submit_block(group, block, running);
}

void Layer::submit_block(uint64_t group, uint64_t block, Tensor (&running)[3]) {
  const uint64_t rows = kBatch * kGroup, first = group * kGroup * kDim;
  Tensor query = columns(query_, kBatch, first, kGroup * kDim);
  Tensor attention = columns(attention_, kBatch, first, kGroup * kDim);
  Tensor keys = part(key_cache_, {block_count_, kBlockSize, 1, kDim}, {0, 0, group, 0});
  Tensor values = part(value_cache_, {block_count_, kBlockSize, 1, kDim}, {0, 0, group, 0});
  Tensor table = columns(block_table_, kBatch, block, 1);
  Tensor scores = intermediate({rows, kBlockSize}), weights = intermediate({rows, kBlockSize});
  Tensor block_max = intermediate({rows}), block_sum = intermediate({rows});
  Tensor partial = intermediate({rows, kDim});
  const PTOParam number = make_scalar_param(block);
  const PTOParam scale = make_scalar_param(bits(0.25f));  // 1 / sqrt(kDim)

  PTOParam qk[] = {in(query), in(keys), in(table), in(contexts_), out(scores), number};
  cube(kQueryKey, qk);
  PTOParam sf[] = {in(scores),     in(contexts_), out(weights), out(block_max),
                   out(block_sum), number,        scale};
  vector(kSoftmax, sf);
  PTOParam pv[] = {in(weights), in(values), in(table), in(contexts_), out(partial), number};
  cube(kWeightsValue, pv);
  PTOParam up[] = {in(block_max),     in(block_sum),
                   in(partial),       inout(running[0]),
                   inout(running[1]), inout(running[2]),
                   inout(attention),  make_scalar_param(block + 1 == blocks_)};
  vector(kUpdate, up);
}

void Layer::matmul_add(Tensor& x, Tensor w, Tensor residual, Tensor result) {
  PTO2_SCOPE(rt_) {
    Tensor product = intermediate({kBatch, kDim});
    matmul(x, w, product);
    PTOParam params[] = {in(residual), in(product), inout(result)};
    vector(kAdd, params);
  }
}

void Layer::submit_out_projection() {
  for (uint64_t first = 0; first < kHidden; first += kDim) {
    matmul_add(attention_, columns(w_out_, kHidden, first, kDim), columns(x_, kBatch, first, kDim),
               columns(residual_, kBatch, first, kDim));
  }
}

void Layer::submit_ffn() {
  for (uint64_t first = 0; first < kFfn; first += kFfnTile) {
    PTO2_SCOPE(rt_) {
      Tensor gate = intermediate({kBatch, kFfnTile}), up = intermediate({kBatch, kFfnTile});
      Tensor hidden = columns(ffn_hidden_, kBatch, first, kFfnTile);
      matmul(ffn_normed_, columns(w_gate_, kHidden, first, kFfnTile), gate);
      matmul(ffn_normed_, columns(w_up_, kHidden, first, kFfnTile), up);
      PTOParam params[] = {in(gate), in(up), inout(hidden)};
      vector(kGate, params);
    }
  }
  for (uint64_t first = 0; first < kHidden; first += kDim) {
    matmul_add(ffn_hidden_, columns(w_down_, kFfn, first, kDim),
               columns(residual_, kBatch, first, kDim), columns(out_, kBatch, first, kDim));
  }
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 20;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  Layer(rt, args).submit();
}
