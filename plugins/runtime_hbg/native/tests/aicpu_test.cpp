// Tests of aicpu_build_graph with the inline backend, in both build modes: results, publishing,
// errors.
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"
#include "float_kernels.hpp"

namespace {

constexpr const char* kAicpu = "aicpu_build_graph";
const std::vector<std::vector<pto_option>> kBuildModes = {
    {}, {{"build_mode", "1"}}, {{"build_mode", "0"}}};

struct Recorder {
  std::vector<uint64_t> order;
  TestDevice device;

  explicit Recorder(const std::vector<pto_option>& options = {}) : device(kAicpu, options) {
    const auto note = [this](const pto_payload& payload) {
      order.push_back(payload.task);
      return 0;
    };
    device.add_kernel(0, PTO_CORE_AIC, note);
    device.add_kernel(1, PTO_CORE_AIV, note);
  }

  int32_t step() { return device.api().schedule_step(device.runtime(), 0); }
};

TEST(diamond_in_both_build_modes) {
  for (const auto& options : kBuildModes) {
    Recorder recorder(options);
    TestDevice& device = recorder.device;
    const pto_status status = device.run([&] {
      for (int task = 0; task < 4; ++task) CHECK_EQUAL(device.add_task(task % 2), task);
      device.add_edge(0, 1);
      device.add_edge(0, 2);
      device.add_edge(1, 3);
      device.add_edge(2, 3);
      for (const int task : {3, 1, 0, 2}) CHECK_EQUAL(device.publish(task), PTO_OK);
      return 0;
    });
    CHECK_EQUAL(status, PTO_OK);
    CHECK_EQUAL(recorder.order.size(), 4u);
    CHECK_EQUAL(recorder.order.front(), 0u);
    CHECK_EQUAL(recorder.order.back(), 3u);
  }
}

TEST(edge_from_a_completed_task_is_satisfied) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    device.add_task(0);
    device.publish(0);
    CHECK_EQUAL(recorder.step(), PTO_STEP_PROGRESS);
    CHECK_EQUAL(recorder.step(), PTO_STEP_PROGRESS);
    CHECK_EQUAL(recorder.step(), PTO_STEP_IDLE);
    device.add_task(1);
    CHECK_EQUAL(device.add_edge(0, 1), PTO_OK);
    device.publish(1);
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK(recorder.order == std::vector<uint64_t>({0, 1}));
  CHECK_EQUAL(device.statistic("edges"), 0u);
  CHECK_EQUAL(device.statistic("edges_to_completed"), 1u);
}

TEST(predecessor_that_completes_before_the_publish_counts_once) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    device.add_task(0);
    device.add_task(0);
    device.add_task(1);
    device.add_edge(0, 2);
    device.add_edge(1, 2);
    device.publish(0);
    while (recorder.step() == PTO_STEP_PROGRESS) continue;
    CHECK(recorder.order == std::vector<uint64_t>({0}));
    device.publish(2);
    while (recorder.step() == PTO_STEP_PROGRESS) continue;
    CHECK(recorder.order == std::vector<uint64_t>({0}));
    device.publish(1);
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK(recorder.order == std::vector<uint64_t>({0, 1, 2}));
}

TEST(a_sequential_build_runs_no_task_before_its_end) {
  Recorder recorder(kBuildModes[2]);
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    device.add_task(0);
    device.publish(0);
    CHECK_EQUAL(recorder.step(), PTO_STEP_IDLE);
    CHECK(recorder.order.empty());
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(recorder.order.size(), 1u);
}

// Invariant: Only published tasks run, and a task is published at most once.
TEST(publish_errors) {
  for (const auto& options : kBuildModes) {
    Recorder recorder(options);
    TestDevice& device = recorder.device;
    CHECK_EQUAL(device.run([&] {
      device.add_task(0);
      device.publish(0);
      return device.publish(0), 0;
    }),
                PTO_ERROR_USAGE);
    CHECK_CONTAINS(device.error().message, "task 0 is published a second time");
    CHECK_EQUAL(device.run([&] {
      device.add_task(0);
      device.add_task(0);
      device.publish(1);
      return device.add_edge(0, 1), 0;
    }),
                PTO_ERROR_USAGE);
    CHECK_CONTAINS(device.error().message, "edge 0 -> 1 was added after task 1 was published");
    CHECK_EQUAL(device.run([&] {
      for (int task = 0; task < 20; ++task) device.add_task(0);
      return device.publish(1), 0;
    }),
                PTO_ERROR_UNPUBLISHED);
    CHECK_CONTAINS(
        device.error().message,
        "19 of 20 tasks were never published (0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ...)");
    CHECK_EQUAL(device.run([&] {
      device.add_task(0);
      return device.publish(0), 0;
    }),
                PTO_OK);
  }
}

TEST(cycle_is_named_in_both_build_modes) {
  for (const auto& options : kBuildModes) {
    Recorder recorder(options);
    TestDevice& device = recorder.device;
    const pto_status status = device.run([&] {
      for (int task = 0; task < 6; ++task) device.add_task(0);
      device.add_edge(0, 2);
      device.add_edge(2, 4);
      device.add_edge(4, 2);
      device.add_edge(4, 5);
      for (int task = 0; task < 6; ++task) device.publish(task);
      return 0;
    });
    CHECK_EQUAL(status, PTO_ERROR_CYCLE);
    CHECK_CONTAINS(device.error().message, "a cycle of 2 tasks: 2 -> 4 -> 2");
  }
}

struct Case {
  std::vector<float> in = {1, 2, 3, 4};
  TestDevice device;

  explicit Case(const std::vector<pto_option>& options) : device(kAicpu, options) {
    add_float_kernels(device);
  }

  // Passes host addresses as device addresses: the device memory of the inline backend is host
  // memory.
  pto_status run(const std::string& entry, std::vector<float>& out) {
    return device.run_library(orchestration(kAicpu, entry),
                              {reinterpret_cast<uint64_t>(in.data()),
                               reinterpret_cast<uint64_t>(out.data()), in.size() * sizeof(float)});
  }
};

TEST(orchestrations_compute_correct_results) {
  for (const auto& options : kBuildModes) {
    Case graph(options);
    for (const char* entry : {"diamond", "diamond_through_c"}) {
      std::vector<float> out(4, 0);
      const pto_status status = graph.run(entry, out);
      if (status != PTO_OK) check::fail(entry, 0, graph.device.error().message);
      CHECK(out == std::vector<float>({6, 12, 20, 30}));
    }
  }
}

TEST(orchestration_sees_the_build_mode) {
  for (const auto& options : kBuildModes) {
    Case graph(options);
    std::vector<float> out(4, 0);
    CHECK_EQUAL(graph.run("tells_build_mode", out), PTO_ERROR_ORCHESTRATION);
    const bool is_sequential = !options.empty() && options[0].value[0] == '0';
    CHECK_EQUAL(graph.device.error().value, is_sequential ? 100u : 101u);
  }
}

TEST(unpublished_work_of_an_orchestration_is_an_error) {
  Case graph({});
  std::vector<float> out(4, 0);
  CHECK_EQUAL(graph.run("forgets_to_publish", out), PTO_ERROR_UNPUBLISHED);
  CHECK_CONTAINS(graph.device.error().message, "2 of 3 tasks were never published (0, 2)");
  CHECK_EQUAL(graph.run("diamond", out), PTO_OK);
}

TEST(both_variants_live_in_one_process) {
  TestDevice host("host_build_graph");
  TestDevice aicpu(kAicpu);
  int runs = 0;
  for (TestDevice* device : {&host, &aicpu}) {
    device->add_kernel(0, PTO_CORE_AIC, [&](const pto_payload&) { return ++runs, 0; });
    CHECK_EQUAL(device->run([&] { return device->publish(device->add_task(0)), 0; }), PTO_OK);
  }
  CHECK_EQUAL(runs, 2);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
