// A device of the backend with the toy runtime attached, for tests.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "check.hpp"
#include "pto/abi/backend.h"
#include "toy_runtime.hpp"

extern "C" const pto_backend_api* pto_backend_entry(void);

struct Fixture {
  struct Option {
    const char* key;
    std::string value;
  };

  explicit Fixture(std::initializer_list<Option> given, toy::Variant variant = toy::host_built)
      : Fixture(std::vector<Option>(given), variant) {}
  explicit Fixture(const std::vector<Option>& given, toy::Variant variant = toy::host_built) {
    std::vector<pto_option> options;
    for (const auto& [key, value] : given) options.push_back({key, value.c_str()});
    const auto count = static_cast<uint32_t>(options.size());
    const pto_status status = api->open(0, options.data(), count, &device, &shape, &error);
    if (status != PTO_OK) check::failed(__FILE__, __LINE__, error.message);
    attach(variant);
    runtime = static_cast<toy::Runtime*>(handle);
    config.aicpu_thread_num = 3;
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;
  ~Fixture() { close(); }

  void attach(toy::Variant variant) {
    const pto_attachment attachment{toy::table(variant), "toy", nullptr, 0, 0};
    const pto_runtime_api* table = nullptr;
    CHECK_EQUAL(api->attach(device, &attachment, nullptr, 0, &table, &handle, &error), PTO_OK);
    CHECK(table == attachment.api);
  }

  pto_leak_report close() {
    pto_leak_report leaks{};
    if (device != nullptr) api->close(device, &leaks);
    device = nullptr;
    return leaks;
  }

  // Registers a kernel that is a function of this process; its func_id is its number.
  int32_t kernel(pto_kernel_callback callback, void* context = nullptr,
                 const char* name = "callback") {
    const auto func_id = static_cast<int32_t>(kernels.size());
    return load({func_id, PTO_CORE_AIV, name, nullptr, nullptr, callback, context});
  }

  // Registers a kernel that is a function of a shared library.
  int32_t kernel_of(const char* library, const char* symbol) {
    const auto func_id = static_cast<int32_t>(kernels.size());
    return load({func_id, PTO_CORE_AIV, symbol, library, symbol, nullptr, nullptr});
  }

  int32_t load(const pto_kernel_source& source) {
    uint64_t address = 0;
    CHECK_EQUAL(api->load_kernel(device, &source, &address, &error), PTO_OK);
    kernels.push_back({source.func_id, PTO_CORE_AIV, address, source.name, nullptr});
    return source.func_id;
  }

  // Executes a whole run with the orchestration on the device's own thread.
  pto_status run(const toy::Program& program) {
    begin(&program);
    return finish();
  }

  // Executes a whole run with the orchestration on the calling thread.
  pto_status run_from_here(const toy::Program& program) {
    begin(nullptr);
    api->orchestration_done(device, program(*runtime));
    return finish();
  }

  void begin(const toy::Program* program) { CHECK_EQUAL(start(program), PTO_OK); }

  pto_status start(const toy::Program* program) {
    argument = reinterpret_cast<uint64_t>(program);
    graph = {};
    graph.kernels = kernels.data();
    graph.num_kernels = static_cast<uint32_t>(kernels.size());
    graph.args = &argument;
    graph.num_args = 1;
    graph.library = program != nullptr ? 1 : 0;
    graph.config = &config;
    graph.ranges = ranges.data();
    graph.num_ranges = static_cast<uint32_t>(ranges.size());
    graph.attend = attend;
    graph.trace = trace;
    graph.attend_context = attend_context;
    return api->start(device, &graph, &error);
  }

  pto_status finish() {
    while (api->wait(device, 50'000'000) == PTO_PENDING) {
    }
    return api->finish(device, &report, &error);
  }

  const pto_backend_api* api = pto_backend_entry();
  void* device = nullptr;
  pto_device_shape shape{};
  void* handle = nullptr;
  toy::Runtime* runtime = nullptr;
  std::vector<pto_kernel_entry> kernels;
  pto_call_config config{};
  std::vector<pto_host_range> ranges;
  void (*attend)(void*) = nullptr;
  pto_run_trace* trace = nullptr;
  void* attend_context = nullptr;
  uint64_t argument = 0;
  pto_run graph{};
  pto_run_report report{};
  pto_error error{};
};
