// A device of the inline backend with one variant attached, for tests that submit tasks themselves.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pto/abi/backend.h"
#include "variant_library.hpp"

extern "C" const pto_backend_api* pto_backend_entry();

class TestDevice {
 public:
  using Kernel = std::function<int(const pto_payload& payload)>;

  explicit TestDevice(const std::string& variant, std::vector<pto_option> options = {})
      : backend_(*pto_backend_entry()), api_(load_variant(variant)) {
    pto_error error;
    pto_device_shape shape;
    CHECK_EQUAL(backend_.open(0, nullptr, 0, &device_, &shape, &error), PTO_OK);
    const pto_attachment attachment{api_, variant.c_str(), nullptr, 0, 0};
    status_ = backend_.attach(device_, &attachment, options.data(),
                              static_cast<uint32_t>(options.size()), &api_, &runtime_, &error_);
  }

  ~TestDevice() {
    if (status_ == PTO_OK) backend_.detach(device_);
    for (const pto_kernel_entry& kernel : kernels_) backend_.unload_kernel(device_, kernel.address);
    pto_leak_report leaks;
    backend_.close(device_, &leaks);
    if (leaks.buffers != 0) check::fail(__FILE__, __LINE__, "device buffers leaked");
  }

  void add_kernel(int32_t func_id, int32_t core_type, Kernel kernel) {
    bodies_.push_back(std::move(kernel));
    pto_kernel_source source{};
    source.func_id = func_id;
    source.core_type = core_type;
    source.callback = [](void* context, const pto_payload* payload, uint32_t, pto_error*) {
      return (*static_cast<Kernel*>(context))(*payload);
    };
    source.context = &bodies_.back();
    add_kernel_source(source);
  }

  void add_kernel_source(const pto_kernel_source& source) {
    uint64_t address = 0;
    pto_error error;
    const pto_status status = backend_.load_kernel(device_, &source, &address, &error);
    if (status != PTO_OK) check::fail(__FILE__, __LINE__, error.message);
    kernels_.push_back({source.func_id, source.core_type, address, "kernel", nullptr});
  }

  // The options for the following runs; the inline backend has one thread and ignores them.
  void configure(const pto_call_config& config) { config_ = config; }

  // Runs the tasks that `build` submits; returns the status of the run, and stores its error and
  // report.
  template <class Build>
  pto_status run(Build build) {
    if (start(0, {}) != PTO_OK) return error_.status;
    const int32_t result = build();
    backend_.orchestration_done(device_, result);
    return finish();
  }

  // Runs the orchestration of a library.
  pto_status run_library(const std::string& path, const std::vector<uint64_t>& args) {
    uint64_t library = 0;
    pto_error error;
    const pto_status status = backend_.load_library(device_, path.c_str(), &library, &error);
    if (status != PTO_OK) check::fail(__FILE__, __LINE__, error.message);
    const pto_status result = start(library, args) == PTO_OK ? finish() : error_.status;
    backend_.unload_library(device_, library);
    return result;
  }

  int64_t add_task(int32_t func_id, std::vector<uint64_t> args = {}, int32_t core_type = -1) {
    const pto_task task{func_id, core_type, static_cast<uint32_t>(args.size()), 0, args.data(), 0,
                        0,       nullptr};
    return api_->submit(runtime_, &task);
  }
  pto_status add_edge(int64_t from, int64_t to) { return api_->add_edge(runtime_, from, to); }
  pto_status publish(int64_t task) { return api_->publish(runtime_, task); }

  uint64_t statistic(const std::string& name) const {
    for (const pto_statistic& entry : statistics_) {
      if (name == entry.name) return entry.value;
    }
    check::fail(__FILE__, __LINE__, "no statistic " + name);
  }

  const pto_backend_api& backend() const { return backend_; }
  const pto_runtime_api& api() const { return *api_; }
  void* device() const { return device_; }
  void* runtime() const { return runtime_; }
  pto_status status() const { return status_; }
  const pto_error& error() const { return error_; }
  const pto_run_report& report() const { return report_; }

 private:
  pto_status start(uint64_t library, const std::vector<uint64_t>& args) {
    run_ = {};
    run_.kernels = kernels_.data();
    run_.num_kernels = static_cast<uint32_t>(kernels_.size());
    args_ = args;
    run_.args = args_.data();
    run_.num_args = static_cast<uint32_t>(args_.size());
    run_.library = library;
    run_.config = &config_;
    return backend_.start(device_, &run_, &error_);
  }

  pto_status finish() {
    CHECK_EQUAL(backend_.wait(device_, -1), PTO_OK);
    const pto_status status = backend_.finish(device_, &report_, &error_);
    statistics_.resize(64);
    statistics_.resize(api_->statistics(runtime_, statistics_.data(), 64));
    return status;
  }

  const pto_backend_api& backend_;
  const pto_runtime_api* api_;
  void* device_ = nullptr;
  void* runtime_ = nullptr;
  pto_status status_ = PTO_OK;
  pto_error error_{};
  pto_run_report report_{};
  pto_run run_{};
  pto_call_config config_{};
  std::vector<uint64_t> args_;
  std::vector<pto_kernel_entry> kernels_;
  std::deque<Kernel> bodies_;
  std::vector<pto_statistic> statistics_;
};
