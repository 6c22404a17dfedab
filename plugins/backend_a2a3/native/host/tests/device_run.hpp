// One device behind the fake driver, with aicpu_build_graph and the kernels of the tests.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "life/aicpu_device.hpp"
#include "vendor.hpp"

namespace device_run {

using namespace pto::a2a3;

inline constexpr int64_t kLongNs = int64_t{60} * 1000 * 1000 * 1000;
inline constexpr uint64_t kCount = 64;

inline std::string hbg;  // the build folder of the variant

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) check::fail(__FILE__, __LINE__, "cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string kernel(const std::string& name) {
  return std::string(PTO_KERNELS) + "/kernel_" + name + ".so";
}

// A run of one kernel on three AICPU threads. The members that `run` refers to must not move.
struct KernelRun {
  KernelRun(const pto_kernel_entry& kernel, uint64_t in, uint64_t out, uint64_t library = 0)
      : entry(kernel), args{in, out} {
    config.aicpu_thread_num = 3;
    run.kernels = &entry;
    run.num_kernels = 1;
    run.args = args;
    run.num_args = 2;
    run.library = library;
    run.config = &config;
  }
  KernelRun(const KernelRun&) = delete;

  pto_kernel_entry entry;
  uint64_t args[2];
  pto_call_config config = {};
  pto_run run = {};
};

inline DeviceImages images() {
  return {read_file(PTO_DISPATCHER), read_file(PTO_DEVICE_LIBRARY), read_file(PTO_EXECUTOR)};
}

inline AicpuOptions options() {
  AicpuOptions options;
  options.pool_bytes = uint64_t{64} << 20;
  options.gate_timeout_ms = 20'000;
  return options;
}

// Settings of the fake driver; `silicon` are those of its device process.
inline std::string settings(const std::string& silicon) {
  return std::string("memory_mib=128,process=") + PTO_DEVICE_PROCESS +
         ",libraries=" + PTO_INSTALLED + ",silicon=" + silicon;
}

// Standard error in a file, until the end of the object.
struct CapturedErrors {
  CapturedErrors() : before(dup(STDERR_FILENO)) { dup2(fileno(file), STDERR_FILENO); }
  ~CapturedErrors() {
    dup2(before, STDERR_FILENO);
    close(before);
    std::fclose(file);
  }
  std::string text() const {
    std::string text(1 << 15, ' ');
    text.resize(static_cast<size_t>(pread(fileno(file), text.data(), text.size(), 0)));
    return text;
  }

  std::FILE* const file = std::tmpfile();
  const int before;
};

inline void expect(pto_status status, const pto_error& error, int line) {
  if (status != PTO_OK) check::fail(__FILE__, line, error.message);
}

struct CardDevice {
  explicit CardDevice(vendor::Fake& fake, const Limits& limits = {},
                      const AicpuOptions& settings = options())
      : fake(fake), settings(settings), card(fake.driver), aicpu(card) {
    pto_error error = {};
    expect(card.open({0, "", limits}, &error), error, __LINE__);
    prepare();
  }

  // The device library, the variant, a block of floats 0, 1, 2, ..., and a second one.
  void prepare() {
    pto_error error = {};
    expect(aicpu.open(images(), settings, &error), error, __LINE__);
    uint64_t variant = 0;
    const std::string library = read_file(hbg + "/native/libpto_aicpu_build_graph.so");
    expect(aicpu.load(PTO_A2A3_VARIANT, library, nullptr, &variant, nullptr, &error), error,
           __LINE__);
    expect(aicpu.attach(variant, "aicpu_build_graph", {}, &error), error, __LINE__);
    std::vector<float> values;
    for (uint64_t i = 0; i < kCount; ++i) values.push_back(static_cast<float>(i));
    expect(card.memory().allocate(sizeof(float) * kCount, &in, &error), error, __LINE__);
    expect(card.memory().allocate(sizeof(float) * kCount, &out, &error), error, __LINE__);
    expect(card.memory().copy_in(in, values.data(), sizeof(float) * kCount, &error), error,
           __LINE__);
  }

  uint64_t load(uint32_t kind, const std::string& path, uint64_t* address = nullptr) {
    uint64_t handle = 0;
    pto_error error = {};
    expect(aicpu.load(kind, read_file(path), nullptr, &handle, address, &error), error, __LINE__);
    return handle;
  }

  // Starts a run of one task, which calls a kernel of the tests as function 7.
  void start(const std::string& name, int32_t core_type = PTO_CORE_AIV) {
    uint64_t address = 0;
    load(PTO_A2A3_KERNEL, kernel(name), &address);
    start_at(address, core_type);
  }

  void start_at(uint64_t address, int32_t core_type = PTO_CORE_AIV) {
    const KernelRun task({7, core_type, address, nullptr, nullptr}, in, out);
    const uint64_t graph = load(PTO_A2A3_ORCHESTRATION, kernel("graph_of_7"));
    pto_error error = {};
    expect(aicpu.start(task.run, graph, {}, 0, &error), error, __LINE__);
  }

  pto_status finish(pto_error* error) {
    CHECK_EQUAL(aicpu.wait(kLongNs), PTO_OK);
    return aicpu.finish(error);
  }

  // Runs one task, and checks what it wrote. `address` is that of a kernel; 0: load one.
  void run_one_task(uint64_t address = 0) {
    pto_error error = {};
    expect(card.memory().fill(out, 0, sizeof(float) * kCount, &error), error, __LINE__);
    if (address == 0) {
      start("add");
    } else {
      start_at(address);
    }
    expect(finish(&error), error, __LINE__);
    float values[kCount];
    expect(card.memory().copy_out(values, out, sizeof values, &error), error, __LINE__);
    for (uint64_t i = 0; i < kCount; ++i) CHECK_EQUAL(values[i], static_cast<float>(i) + 1);
  }

  // Resets the card by force, and prepares it for runs.
  void recover() {
    pto_error error = {};
    expect(aicpu.close(&error), error, __LINE__);
    expect(card.recover(&error), error, __LINE__);
    prepare();
  }

  // Releases everything; no rule may be broken and nothing may be left.
  void close() {
    pto_error error = {};
    expect(aicpu.detach(&error), error, __LINE__);
    expect(aicpu.close(&error), error, __LINE__);
    expect(card.memory().free(in, &error), error, __LINE__);
    expect(card.memory().free(out, &error), error, __LINE__);
    card.close();
    CHECK_EQUAL(fake.control.findings(), std::string());
    fake.control.reset();  // the device process must end without a report of a sanitizer
  }

  vendor::Fake& fake;
  const AicpuOptions settings;
  Card card;
  AicpuDevice aicpu;
  uint64_t in = 0, out = 0;
};

}  // namespace device_run
