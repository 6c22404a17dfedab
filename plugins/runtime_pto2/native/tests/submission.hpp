// Builds one submit for a test: tensors over external memory, parameters by tag, and the call
// itself.
#pragma once

#include <vector>

#include "one_thread.hpp"

constexpr const char* kFile = "/project/graph.cpp";

inline pto_tensor_data bytes_at(uint64_t address, uint64_t bytes, uint64_t offset, uint64_t count) {
  pto_tensor_data data{};
  data.buffer = {address, bytes};
  data.raw_shapes[0] = bytes;
  data.shapes[0] = count;
  data.offsets[0] = data.start_offset = offset;
  data.ndims = 1;
  data.dtype = PTO_DTYPE_UINT8;
  data.owner = -1;
  return data;
}

inline pto_tensor_data bytes_at(uint64_t address, uint64_t bytes) {
  return bytes_at(address, bytes, 0, bytes);
}

inline pto_tensor_data unplaced(uint64_t bytes) {
  return bytes_at(0, bytes);
}

inline pto_param tensor_param(uint32_t tag, pto_tensor_data& data) {
  pto_param param{};
  param.tag = tag;
  param.value.tensor = &data;
  return param;
}

inline pto_param scalar_param(uint64_t value) {
  pto_param param{};
  param.tag = PTO_TAG_SCALAR;
  param.value.scalar = value;
  return param;
}

class Submission {
 public:
  explicit Submission(OneThread& device) : device_(device) {
    task_.core_type = PTO_CORE_AIV;
    task_.file = kFile;
    task_.line = 7;
  }

  Submission& tensor(uint32_t tag, pto_tensor_data& data) {
    params_.push_back(tensor_param(tag, data));
    return *this;
  }
  Submission& scalar(uint64_t value) {
    params_.push_back(scalar_param(value));
    return *this;
  }
  Submission& blocks(uint32_t count) {
    task_.block_dim = count;
    return *this;
  }
  Submission& on(const int32_t* clusters) {
    task_.clusters = clusters;
    return *this;
  }

  // The task itself, for members that the functions above do not set.
  pto_tensor_task& task() { return task_; }

  int64_t submit() {
    task_.params = params_.data();
    task_.num_params = static_cast<uint32_t>(params_.size());
    return device_.api().submit_tensors(device_.runtime(), &task_);
  }

 private:
  OneThread& device_;
  pto_tensor_task task_{};
  std::vector<pto_param> params_;
};
