// A published source that declares types in advance, stores handles in containers, passes function
// pointers and lambdas, and defines names that a header might use.
struct PTO2Runtime;
class Tensor;
enum class CoreType : int;

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/core_type.h"
#include "pto_types.h"
#include "tensor.h"

#include "pto_orchestration_api.h"

#define N 16
#define T 4
#define M N
#define SIZE (N * T)
#define CHECK(x) ((void)(x))

namespace {
struct Location {
  int line;
};
struct Layer {
  Tensor weight;
  Tensor state;
  std::vector<Tensor> tiles;
};
using SubmitFn = void (*)(PTO2Runtime*, int32_t, PTO2WorkerType, PTOParam*, int32_t);
Tensor cached;
static Tensor rows_of(const Tensor& t, uint64_t first, uint64_t count) {
  const uint64_t shapes[2] = {count, t.data().shapes[1]};
  const uint64_t offsets[2] = {first, 0};
  return t.view(shapes, offsets);
}
static inline void submit(PTO2Runtime* rt, int32_t kernel, PTOParam* params, int32_t n) {
  pto2_rt_submit_task(rt, kernel, PTO2_WORKER_VECTOR, params, n);
}
template <typename... P>
void launch(PTO2Runtime* rt, int32_t kernel, PTO2WorkerType worker, P... p) {
  PTOParam params[] = {p...};
  pto2_rt_submit_task(rt, kernel, worker, params, static_cast<int32_t>(sizeof...(p)));
}
}  // namespace

static void report(const char*) {}
static void record(PTO2Runtime*, int) {}
uint64_t element_count(int n) {
  return n;
}

void my_entry(PTO2Runtime* rt, uint64_t* args, int) {
  uint64_t shapes[RUNTIME_MAX_TENSOR_DIMS] = {N, M};
  Layer layer{make_tensor_external((void*)args[0], shapes, 2), make_tensor(shapes, 2), {}};
  for (int i = 0; i < T; i++) layer.tiles.push_back(rows_of(layer.weight, i * T, T));
  std::array<Tensor, 3> three;
  Tensor raw[2];
  std::map<std::string, Tensor> named;
  named["weight"] = layer.weight;
  cached = layer.weight;
  raw[0] = layer.weight.transpose(0, 1);
  uint64_t flat[1] = {SIZE * 4};
  raw[1] = layer.weight.reshape(flat, 1);
  three[0] = raw[1].copy();
  Tensor* on_heap = new Tensor(three[0]);
  auto shared = std::make_shared<Tensor>(*on_heap);
  delete on_heap;
  std::vector<PTOParam> params;
  params.reserve(4);
  params.push_back(make_output_param(layer.state));
  params.emplace_back(make_input_param(named["weight"]));
  pto2_rt_submit_task(rt, 0, PTO2_WORKER_CUBE, params.data(), static_cast<int>(params.size()));
  const SubmitFn call = pto2_rt_submit_task;
  call(rt, 1, PTO2_WORKER_VECTOR, params.data(), 1);
  auto lambda = [&](int tile) {
    PTO2_SCOPE(rt) {
      if (tile == 3) return;
      PTOParam p[2] = {make_inout_param(layer.tiles[tile]), make_scalar_param(tile)};
      submit(rt, 2, p, 2);
      LOG_DEBUG(rt, "tile %d of %p", tile, (void*)layer.tiles[tile].data().buffer.addr);
    }
  };
  for (int i = 0; i < T; i++) lambda(i);
  launch(rt, 3, PTO2_WORKER_VECTOR, make_inout_param(*shared), make_scalar_param(1));
  pto2_rt_scope_begin(rt);
  pto2_rt_scope_end(rt);
  if (raw[0].is_contiguous() || raw[0].numel() != N * M) LOG_WARN(rt, "odd");
  report("done"), record(rt, Location{1}.line), CHECK(element_count(2));
}
