// Measures the cost of a submit for the orchestrator. Schedulers run between the rounds on the same
// thread, and kernels and cores cost nothing.
//
// Prints one line for each kind of task: median, minimum and maximum nanoseconds of a submit.
// Argument: repetitions. With 1 repetition, callgrind counts the same number of instructions in
// each run.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "check.hpp"
#include "pto/abi/dtype.h"
#include "pto/abi/runtime.h"

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant);

namespace {

constexpr uint32_t kTasks = 1000;
constexpr uint32_t kRounds = 30;
constexpr uint64_t kBytes = 1024;

class Device {
 public:
  Device() {
    topology_.blocks = 24;
    topology_.cores = 72;
    topology_.schedulers = 1;
    for (uint32_t core = 0; core < topology_.cores; ++core) {
      topology_.core_type[core] = core < 24 ? PTO_CORE_AIC : PTO_CORE_AIV;
      topology_.thread_cores[0].words[core / 64] |= uint64_t{1} << (core % 64);
    }
    fill_platform();
    pto_error error{};
    const pto_option heap{"heap", "4194304"};
    CHECK_EQUAL(api_->create(&platform_, &heap, 1, &runtime_, &error), PTO_OK);
  }
  ~Device() { api_->destroy(runtime_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  void begin() {
    run_.kernels = &kernel_;
    run_.num_kernels = 1;
    run_.hazards = PTO_HAZARDS_RAW;
    run_.config = &config_;
    CHECK_EQUAL(api_->begin(runtime_, &run_), PTO_OK);
  }

  int64_t submit(pto_param* params, uint32_t count) {
    pto_tensor_task task{};
    task.core_type = PTO_CORE_AIV;
    task.params = params;
    task.num_params = count;
    return api_->submit_tensors(runtime_, &task);
  }

  void scope_begin() { api_->scope_begin(runtime_, nullptr, -1); }
  void scope_end() { api_->scope_end(runtime_); }

  void step_until_idle() {
    while (api_->schedule_step(runtime_, 0) == PTO_STEP_PROGRESS) {
    }
  }

  void end() {
    api_->orchestration_done(runtime_, 0);
    while (api_->schedule_step(runtime_, 0) != PTO_STEP_DONE) {
    }
    CHECK_EQUAL(api_->finalise(runtime_), PTO_OK);
    api_->end(runtime_);
  }

 private:
  void fill_platform() {
    platform_.abi_version = PTO_ABI_VERSION;
    platform_.struct_size = sizeof platform_;
    platform_.self = this;
    platform_.topology = &topology_;
    platform_.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
    platform_.release = [](void*, void* memory, size_t) { std::free(memory); };
    platform_.allocate_ring = [](void*, size_t bytes, uint64_t* address) -> pto_status {
      *address = reinterpret_cast<uint64_t>(std::aligned_alloc(1024, bytes));
      return PTO_OK;
    };
    platform_.free = [](void*, uint64_t address) -> pto_status {
      std::free(reinterpret_cast<void*>(address));
      return PTO_OK;
    };
    platform_.wake = [](void*, uint32_t) {};
    platform_.notify = [](void*, const uint32_t*) {};
    platform_.now = [](void*) { return uint64_t{0}; };
    platform_.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t count) {
      pto_core_mask& busy = static_cast<Device*>(raw)->busy_;
      for (uint32_t i = 0; i < count; ++i) {
        busy.words[batch[i].core / 64] |= uint64_t{1} << (batch[i].core % 64);
      }
    };
    platform_.poll = [](void* raw, uint32_t, pto_poll_result* result) {
      result->done = static_cast<Device*>(raw)->busy_;
      result->faulted = {};
      static_cast<Device*>(raw)->busy_ = {};
    };
  }

  const pto_runtime_api* api_ = pto_runtime_entry("tensormap_and_ringbuffer");
  pto_topology topology_{};
  pto_platform platform_{};
  pto_core_mask busy_{};
  pto_kernel_entry kernel_{0, -1, 1, "kernel", nullptr};
  pto_call_config config_{};
  pto_run run_{};
  void* runtime_ = nullptr;
};

pto_tensor_data tensor_at(uint64_t address) {
  pto_tensor_data data{};
  data.buffer = {address, kBytes};
  data.raw_shapes[0] = data.shapes[0] = kBytes;
  data.ndims = 1;
  data.dtype = PTO_DTYPE_UINT8;
  data.owner = -1;
  return data;
}

pto_param param_of(uint32_t tag, pto_tensor_data& data) {
  pto_param param{};
  param.tag = tag;
  param.value.tensor = &data;
  return param;
}

// Each task updates one of eight buffers.
void submit_updates(Device& device) {
  for (uint32_t task = 0; task < kTasks; ++task) {
    pto_tensor_data data = tensor_at((uint64_t{1} << 30) + task % 8 * kBytes);
    pto_param params[] = {param_of(PTO_TAG_INOUT, data)};
    CHECK(device.submit(params, 1) >= 0);
  }
}

// Each task reads the outputs of the two previous tasks and allocates an output.
void submit_outputs(Device& device) {
  pto_tensor_data older = tensor_at(uint64_t{1} << 30);
  pto_tensor_data newer = tensor_at(uint64_t{1} << 31);
  for (uint32_t task = 0; task < kTasks; ++task) {
    pto_tensor_data made = tensor_at(0);
    pto_param scalar{};
    scalar.tag = PTO_TAG_SCALAR;
    pto_param params[] = {param_of(PTO_TAG_INPUT, older), param_of(PTO_TAG_INPUT, newer),
                          param_of(PTO_TAG_OUTPUT, made), scalar};
    CHECK(device.submit(params, 4) >= 0);
    older = newer;
    newer = made;
  }
}

double run_once(Device& device, void (*submit_all)(Device&)) {
  using Clock = std::chrono::steady_clock;
  Clock::duration time{};
  device.begin();
  for (uint32_t round = 0; round < kRounds; ++round) {
    device.scope_begin();
    const auto start = Clock::now();
    submit_all(device);
    time += Clock::now() - start;
    device.scope_end();
    device.step_until_idle();
  }
  device.end();
  return std::chrono::duration<double, std::nano>(time).count() / (kRounds * kTasks);
}

void measure(const char* name, void (*submit_all)(Device&), int repetitions) {
  Device device;
  std::vector<double> times;
  run_once(device, submit_all);
  for (int i = 0; i < repetitions; ++i) times.push_back(run_once(device, submit_all));
  std::sort(times.begin(), times.end());
  std::printf("%-12s %6.1f ns a submit (%.1f to %.1f)\n", name, times[times.size() / 2],
              times.front(), times.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 11;
  measure("updates", submit_updates, repetitions);
  measure("new outputs", submit_outputs, repetitions);
  return 0;
}
