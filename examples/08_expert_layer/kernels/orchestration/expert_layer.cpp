// Runs on an AICPU thread. The routing is known only on the device, so the graph has the same shape
// for every routing: the tasks of every expert are submitted. A kernel works on as many rows as the
// dispatch task of its expert has counted.

#include <cstdint>
#include <initializer_list>

#include "pto_orchestration_api.h"

namespace {

enum Function { kLogits, kRoute, kDispatch, kExpertMatmul, kGate, kCombine };

constexpr uint64_t kTokenTile = 8;  // tokens per combine task

// The arguments, in the order of golden.py; the first six are device addresses.
struct Arguments {
  uint64_t x, w_router, w_gate, w_up, w_down, out;
  uint64_t tokens, hidden, experts, top, width;
};

using Shape = std::initializer_list<uint64_t>;

Tensor external(uint64_t address, Shape shape) {
  return make_tensor_external(reinterpret_cast<void*>(address), shape.begin(), shape.size());
}

Tensor intermediate(Shape shape, DataType dtype = DataType::FLOAT32) {
  return make_tensor(shape.begin(), shape.size(), dtype);
}

Tensor part(const Tensor& whole, Shape shape, Shape offsets) {
  return whole.view(shape.begin(), offsets.begin());
}

PTOParam in(const Tensor& tensor) {
  return make_input_param(tensor);
}
PTOParam out(const Tensor& tensor) {
  return make_output_param(tensor);
}

class Layer {
 public:
  Layer(PTO2Runtime* rt, const Arguments& in)
      : rt_(rt),
        in_(in),
        x_(external(in.x, {in.tokens, in.hidden})),
        w_router_(external(in.w_router, {in.hidden, in.experts})),
        w_gate_(external(in.w_gate, {in.experts, in.hidden, in.width})),
        w_up_(external(in.w_up, {in.experts, in.hidden, in.width})),
        w_down_(external(in.w_down, {in.experts, in.width, in.hidden})),
        out_(external(in.out, {in.tokens, in.hidden})),
        chosen_(intermediate({in.tokens, in.top}, DataType::INT32)),
        shares_(intermediate({in.tokens, in.top})),
        answers_(intermediate({in.experts, in.tokens, in.hidden})) {}

  void submit();

 private:
  void submit_router();
  void submit_expert(uint64_t expert);
  void submit_combine(uint64_t first);

  template <size_t N>
  void cube(Function function, PTOParam (&params)[N]) {
    pto2_rt_submit_task(rt_, function, PTO2_WORKER_CUBE, params, N);
  }
  template <size_t N>
  void vector(Function function, PTOParam (&params)[N]) {
    pto2_rt_submit_task(rt_, function, PTO2_WORKER_VECTOR, params, N);
  }

  PTO2Runtime* rt_;
  const Arguments& in_;
  Tensor x_, w_router_, w_gate_, w_up_, w_down_, out_;
  Tensor chosen_, shares_;
  Tensor answers_;  // filled by the experts in inner scopes, so the router allocates it
};

void Layer::submit() {
  submit_router();
  for (uint64_t expert = 0; expert < in_.experts; ++expert) {
    PTO2_SCOPE(rt_) {
      submit_expert(expert);
    }
  }
  for (uint64_t first = 0; first < in_.tokens; first += kTokenTile) submit_combine(first);
}

void Layer::submit_router() {
  Tensor logits = intermediate({in_.tokens, in_.experts});
  PTOParam score[] = {in(x_), in(w_router_), out(logits)};
  cube(kLogits, score);
  PTOParam route[] = {make_inout_param(logits), out(chosen_), out(shares_), out(answers_)};
  vector(kRoute, route);
}

void Layer::submit_expert(uint64_t expert) {
  const uint64_t tokens = in_.tokens, hidden = in_.hidden, width = in_.width;
  Tensor gathered = intermediate({tokens, hidden});
  Tensor count = intermediate({1}, DataType::INT32);
  PTOParam dispatch[] = {in(x_), in(chosen_), out(gathered), out(count), make_scalar_param(expert)};
  vector(kDispatch, dispatch);

  Tensor gate = intermediate({tokens, width}), up = intermediate({tokens, width});
  PTOParam gate_matmul[] = {in(gathered), in(part(w_gate_, {1, hidden, width}, {expert, 0, 0})),
                            in(count), out(gate)};
  cube(kExpertMatmul, gate_matmul);
  PTOParam up_matmul[] = {in(gathered), in(part(w_up_, {1, hidden, width}, {expert, 0, 0})),
                          in(count), out(up)};
  cube(kExpertMatmul, up_matmul);

  Tensor gated = intermediate({tokens, width});
  PTOParam gating[] = {in(gate), in(up), in(count), out(gated)};
  vector(kGate, gating);
  PTOParam down_matmul[] = {in(gated), in(part(w_down_, {1, width, hidden}, {expert, 0, 0})),
                            in(count), out(part(answers_, {1, tokens, hidden}, {expert, 0, 0}))};
  cube(kExpertMatmul, down_matmul);
}

// Reads the answers of all experts, and therefore runs after all their tasks.
void Layer::submit_combine(uint64_t first) {
  const Shape tile = {kTokenTile, in_.hidden};
  PTOParam params[] = {in(part(x_, tile, {first, 0})),
                       in(chosen_),
                       in(shares_),
                       in(answers_),
                       out(part(out_, tile, {first, 0})),
                       make_scalar_param(first)};
  vector(kCombine, params);
}

}  // namespace

extern "C" PTO2OrchestrationConfig aicpu_orchestration_config(uint64_t*, int) {
  PTO2OrchestrationConfig config{};
  config.expected_arg_count = 11;
  return config;
}

extern "C" void aicpu_orchestration_entry(PTO2Runtime* rt, uint64_t* args, int) {
  const Arguments in{args[0], args[1], args[2], args[3], args[4], args[5],
                     args[6], args[7], args[8], args[9], args[10]};
  Layer(rt, in).submit();
}
