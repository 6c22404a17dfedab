// The runtime on the simulator's pool of threads, as in production. Orchestrations run repeatedly
// on one device, and each result is checked. Both libraries can be built with the same sanitizer.
// Arguments: the path of the simulator's library, and the number of rounds.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "device.hpp"
#include "tensor_kernels.hpp"

namespace {

const char* simulator = nullptr;
constexpr uint64_t kCount = 64;

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
    config.aicpu_thread_num = 3;
    device.configure(config);
    add_tensor_kernels(device);
    for (int round = std::atoi(argv[2]); round > 0; --round) run_all(device);
  }
  std::printf("on the simulator\n");
}
