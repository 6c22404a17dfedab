// The runtime on the simulator's pool of threads, as in production. Orchestrations run repeatedly
// on one device, and each result is checked. Then kernels wait for each other. Both libraries can
// be built with the same sanitizer. Arguments: the path of the simulator's library, and the number
// of rounds.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device.hpp"
#include "tensor_kernels.hpp"

namespace {

const char* simulator = nullptr;
constexpr uint64_t kCount = 64;
constexpr int32_t kMeet = 3;  // the function on AIC; the next one is that on AIV

float product(float x) {
  return (x + 1) * (x + 2);
}

struct Case {
  const char* entry;
  float (*expected)(float x);
};

constexpr Case kCases[] = {
    {"diamond", product},
    {"diamond_of_views", product},
    {"long_chain", [](float x) { return x + 1000; }},
    {"clustered", [](float x) { return x + 1 + 2; }},
    {"blocks", [](float x) { return x + 2; }},
};

void run_all(TestDevice& device) {
  for (const auto& [entry, expected] : kCases) {
    std::vector<float> in, out(kCount, -1);
    for (uint64_t i = 0; i < kCount; ++i) in.push_back(static_cast<float>(i));
    const std::string library =
        std::string(PTO_ORCHESTRATION_DIRECTORY) + "/tensormap_and_ringbuffer_" + entry + ".so";
    const pto_status status = device.run_library(
        library,
        {reinterpret_cast<uint64_t>(in.data()), reinterpret_cast<uint64_t>(out.data()), kCount});
    if (status != PTO_OK) check::fail(__FILE__, __LINE__, device.error().message);
    for (uint64_t i = 0; i < kCount; ++i) CHECK_EQUAL(out[i], expected(in[i]));
  }
}

// The kernels of a group of tasks meet: each waits until all have counted themselves.
struct Meeting {
  std::atomic<uint64_t> arrived{0};
  uint64_t expected;
};

int meet(const pto_payload& payload) {
  const auto* args = reinterpret_cast<const uint64_t*>(&payload + 1);
  auto& meeting = *reinterpret_cast<Meeting*>(args[0]);
  meeting.arrived.fetch_add(1);
  while (meeting.arrived.load() < meeting.expected) std::this_thread::yield();
  return 0;
}

// Submit a task whose cores meet. With `lanes`, each block is on the cores of a cluster.
bool submit_meeting(TestDevice& device, Meeting& meeting, int32_t core_type, uint32_t blocks,
                    uint8_t lanes) {
  meeting.expected = blocks * (lanes == 0 ? 1 : 3);
  pto_param param{PTO_TAG_SCALAR, 0, {}};
  param.value.scalar = reinterpret_cast<uint64_t>(&meeting);
  pto_tensor_task task{};
  task.func_id = kMeet + core_type;
  task.core_type = lanes == 0 ? core_type : -1;
  task.num_params = 1;
  task.block_dim = blocks == 1 ? 0 : blocks;
  task.params = &param;
  task.api = PTO_API_2026_08;
  task.start = PTO_START_TOGETHER;
  task.lanes = lanes;
  for (int32_t lane = 0; lane < PTO_LANES; ++lane) task.lane_func_ids[lane] = kMeet + (lane > 0);
  device.api().scope_begin(device.runtime(), nullptr, 0);  // its slots are then free again
  const int64_t id = device.api().submit_tensors(device.runtime(), &task);
  device.api().scope_end(device.runtime());
  return id >= 0;
}

// Cohorts of all cores and of some, of each shape, compete with each other and with single tasks.
void run_meetings(TestDevice& device, uint32_t blocks, std::mt19937& random) {
  std::deque<Meeting> meetings;
  const pto_status status = device.run([&] {
    for (int i = 0; i < 60; ++i) {
      const uint32_t shape = random() % 3;
      const uint32_t most = shape == PTO_CORE_AIV ? 2 * blocks : blocks;
      const uint32_t count[] = {1, most, 1 + static_cast<uint32_t>(random() % most)};
      const uint8_t lanes = shape == 2 ? 7 : 0;
      if (!submit_meeting(device, meetings.emplace_back(), static_cast<int32_t>(shape % 2),
                          count[random() % 3], lanes)) {
        return -1;
      }
    }
    return 0;
  });
  if (status != PTO_OK) check::fail(__FILE__, __LINE__, device.error().message);
  for (const Meeting& meeting : meetings) {
    CHECK_EQUAL(meeting.arrived.load(), meeting.expected);
  }
}

}  // namespace

extern "C" const pto_backend_api* pto_backend_entry() {
  void* library = dlopen(simulator, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
  void* symbol = dlsym(library, PTO_BACKEND_ENTRY_SYMBOL);
  CHECK(symbol != nullptr);
  return reinterpret_cast<const pto_backend_api* (*)()>(symbol)();
}

int main(int argc, char** argv) {
  CHECK_EQUAL(argc, 3);
  simulator = argv[1];
  for (const char* window : {"65536", "128"}) {  // with the second window, the ring wraps around
    TestDevice device("tensormap_and_ringbuffer", {{"task_window", window}});
    CHECK_EQUAL(device.status(), PTO_OK);
    pto_call_config config{};
    add_tensor_kernels(device);
    device.add_kernel(kMeet, PTO_CORE_AIC, meet);
    device.add_kernel(kMeet + 1, PTO_CORE_AIV, meet);
    std::mt19937 random(1);
    for (int round = std::atoi(argv[2]); round > 0; --round) {
      config = {};
      config.aicpu_thread_num = 3;
      device.configure(config);
      run_all(device);
      config.block_dim = 1 + round % 4;
      config.aicpu_thread_num = 1 + round % 3;
      device.configure(config);
      run_meetings(device, static_cast<uint32_t>(config.block_dim), random);
    }
  }
  std::printf("on the simulator\n");
}
