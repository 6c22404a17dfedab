// The arguments of one run: checked, placed in device memory, and copied in and back.
//
// Call with the GIL held; large copies release it. The destructor frees the device memory of the
// arguments and invalidates the device arrays that a Python orchestration received.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "device_array.hpp"
#include "host_array.hpp"
#include "program.hpp"

namespace pto::core {

struct CopyTotals {
  uint64_t bytes_in = 0, bytes_out = 0, copies_in = 0, copies_out = 0, nanoseconds = 0;
};

class Arguments {
 public:
  // Check all arguments. If one is invalid, raise UsageError and change nothing.
  Arguments(OpenDevice& device, nb::handle device_object, const Program& program, nb::tuple given);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void copy_in();
  void copy_out();

  // Return the arguments of a C++ orchestration; valid after copy_in().
  const std::vector<uint64_t>& values() const { return values_; }
  // The same arguments with their shapes and data types; valid after copy_in().
  const std::vector<pto_tensor>& described() const { return described_; }
  const std::vector<pto_host_range>& ranges() const { return ranges_; }
  // Return the arguments for a Python orchestration. The first argument is the graph; slot 0 is
  // None until the graph exists.
  nb::object call_tuple(nb::handle graph) const;
  // Return (name, address, bytes, whether it is copied in, whether it is copied back) for each
  // tensor argument in device memory. Two arguments over the same memory are one buffer.
  nb::list placed_buffers() const;
  // Return (name, address, bytes) for each tensor argument in host memory, if the orchestration
  // makes the copies.
  nb::list host_arrays() const;
  const CopyTotals& totals() const { return totals_; }

 private:
  struct Tensor {
    HostArray host;
    size_t position;
    bool copy_in;
    bool copy_out;
    bool is_read_only;  // declared In, or undeclared and in read-only host memory
    size_t buffer;      // index in buffers_; tensors over the same host memory share a buffer
  };

  void check_count() const;
  void take(size_t position, nb::handle object);
  void take_scalar(size_t position, nb::handle object);
  void take_tensor(size_t position, nb::handle object);
  Tag direction_of(size_t position) const;
  Tag listed(size_t position) const;
  void check_signature_used_up() const;
  void describe(size_t position, uint8_t code, const Extents& shape);
  void share_and_refuse_overlap();
  void place();
  void place_and_copy();

  OpenDevice& device_;
  nb::handle device_object_;
  const Program& program_;
  nb::tuple given_;
  bool on_host_;  // the orchestration receives host pointers and makes the copies itself
  std::vector<Tensor> tensors_;
  // For a Python orchestration: the arguments whose numbers were converted to a declared type.
  std::vector<std::pair<size_t, nb::object>> numbers_;
  size_t tensors_seen_ = 0;
  std::vector<uint64_t> values_;
  std::vector<pto_tensor> described_;
  std::vector<pto_host_range> ranges_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  CopyTotals totals_;
};

}  // namespace pto::core
