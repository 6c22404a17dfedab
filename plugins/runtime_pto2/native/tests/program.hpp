// A small orchestration that calls the runtime's table: scopes, tasks with outputs and inputs,
// clusters. Function 0 is the kernel of every task.
#pragma once

#include <deque>
#include <vector>

#include "one_thread.hpp"

class Program {
 public:
  explicit Program(OneThread& device) : device_(device) {}

  void begin_scope() { device_.api().scope_begin(device_.runtime(), nullptr, -1); }
  void end_scope() { device_.api().scope_end(device_.runtime()); }

  // Calls `body` in a scope.
  template <class Body>
  void scope(Body body) {
    begin_scope();
    body();
    end_scope();
  }

  // Return a one-dimensional tensor of bytes without an address.
  static pto_tensor_data tensor(uint64_t bytes) {
    pto_tensor_data data{};
    data.buffer.size = bytes;
    data.raw_shapes[0] = data.shapes[0] = bytes;
    data.ndims = 1;
    data.dtype = PTO_DTYPE_UINT8;
    data.owner = -1;
    return data;
  }

  // Return a tensor over memory outside of the rings.
  static pto_tensor_data tensor_at(uint64_t address, uint64_t bytes) {
    pto_tensor_data data = tensor(bytes);
    data.buffer.addr = address;
    return data;
  }

  // The result of submit(): the id of a task that reads `inputs` and has an output of each size in
  // `outputs`.
  struct Result {
    int64_t task;
    std::vector<pto_tensor_data> outputs;
  };
  Result submit(const std::vector<uint64_t>& outputs = {},
                const std::vector<pto_tensor_data>& inputs = {}, int32_t line = 1,
                int32_t cluster = -1) {
    Result result;
    for (const uint64_t bytes : outputs) result.outputs.push_back(tensor(bytes));
    std::vector<pto_tensor_data> read = inputs;
    std::vector<pto_param> params;
    for (pto_tensor_data& output : result.outputs) params.push_back(param(PTO_TAG_OUTPUT, output));
    for (pto_tensor_data& input : read) params.push_back(param(PTO_TAG_INPUT, input));
    pto_tensor_task task{};
    task.core_type = PTO_CORE_AIV;
    task.num_params = static_cast<uint32_t>(params.size());
    task.params = params.data();
    task.clusters = cluster < 0 ? nullptr : &cluster;
    task.file = "/project/graph.cpp";
    task.line = line;
    result.task = device_.api().submit_tensors(device_.runtime(), &task);
    return result;
  }

  // Submit a task that writes memory outside of the rings. Return its id.
  int64_t write(pto_tensor_data tensor, int32_t line = 1) {
    pto_param parameter = param(PTO_TAG_OUTPUT, tensor);
    pto_tensor_task task{};
    task.core_type = PTO_CORE_AIV;
    task.num_params = 1;
    task.params = &parameter;
    task.file = "/project/graph.cpp";
    task.line = line;
    return device_.api().submit_tensors(device_.runtime(), &task);
  }

  int64_t submit_blocks(uint32_t blocks, int32_t line = 1) {
    pto_tensor_task task{};
    task.core_type = PTO_CORE_AIV;
    task.block_dim = blocks;
    task.file = "/project/graph.cpp";
    task.line = line;
    return device_.api().submit_tensors(device_.runtime(), &task);
  }

  int32_t allocate_cluster(int32_t line = 1) {
    return device_.api().allocate_cluster(device_.runtime(), "/project/graph.cpp", line);
  }
  void free_cluster(int32_t cluster) { device_.api().free_cluster(device_.runtime(), cluster); }

 private:
  static pto_param param(uint32_t tag, pto_tensor_data& data) {
    pto_param param{};
    param.tag = tag;
    param.value.tensor = &data;
    return param;
  }

  OneThread& device_;
};
