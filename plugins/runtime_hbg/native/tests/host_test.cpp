// Tests of host_build_graph with the inline backend: order, results, every error, reuse of memory.
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"
#include "float_kernels.hpp"

namespace {

constexpr const char* kHost = "host_build_graph";

// A device on which kernels 0 (AIC) and 1 (AIV) record the order of their tasks.
struct Recorder {
  std::vector<uint64_t> order;
  TestDevice device{kHost};

  Recorder() {
    const auto note = [this](const pto_payload& payload) {
      order.push_back(payload.task);
      return 0;
    };
    device.add_kernel(0, PTO_CORE_AIC, note);
    device.add_kernel(1, PTO_CORE_AIV, note);
  }

  pto_status run_chain(int tasks) {
    order.clear();
    return device.run([&] {
      for (int task = 0; task < tasks; ++task) {
        device.add_task(task % 2);
        if (task > 0) device.add_edge(task - 1, task);
      }
      return 0;
    });
  }
};

// Checks that the device runs a correct graph, for use after an error.
void check_works(Recorder& recorder) {
  CHECK_EQUAL(recorder.run_chain(3), PTO_OK);
  CHECK(recorder.order == std::vector<uint64_t>({0, 1, 2}));
}

TEST(diamond_runs_in_order) {
  Recorder recorder;
  TestDevice& device = recorder.device;
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

TEST(empty_graph_is_done) {
  Recorder recorder;
  CHECK_EQUAL(recorder.device.run([] { return 0; }), PTO_OK);
  check_works(recorder);
}

TEST(edges_from_higher_to_lower_ids_are_no_cycle) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    for (int task = 0; task < 50; ++task) device.add_task(1);
    for (int task = 1; task < 50; ++task) device.add_edge(task, task - 1);
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  for (uint64_t i = 0; i < 50; ++i) CHECK_EQUAL(recorder.order[i], 49 - i);
}

TEST(duplicate_edge_counts_on_both_sides) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    device.add_task(0);
    device.add_task(0);
    for (int i = 0; i < 10; ++i) device.add_edge(0, 1);
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK(recorder.order == std::vector<uint64_t>({0, 1}));
  CHECK_EQUAL(device.statistic("edges"), 10u);
}

// Invariant: A graph whose edges all go from lower to higher ids has no cycle. Any other graph is
// checked before it runs, or when no task can start.
TEST(cycle_names_its_tasks_and_runs_nothing) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    for (int task = 0; task < 10; ++task) device.add_task(0);
    device.add_edge(0, 3);
    device.add_edge(3, 7);
    device.add_edge(7, 9);
    device.add_edge(7, 5);
    device.add_edge(5, 3);
    return 0;
  });
  CHECK_EQUAL(status, PTO_ERROR_CYCLE);
  CHECK_CONTAINS(device.error().message, "a cycle of 3 tasks: 3 -> 7 -> 5 -> 3");
  CHECK_EQUAL(device.error().task, 3);
  CHECK_EQUAL(device.error().other_task, 7);
  CHECK(recorder.order.empty());
  check_works(recorder);
}

TEST(cycle_through_a_wide_fan_out_is_found) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    for (int task = 0; task < 3000; ++task) device.add_task(0);
    for (int task = 1; task < 3000; ++task) device.add_edge(0, task);
    device.add_edge(2999, 0);
    return 0;
  });
  CHECK_EQUAL(status, PTO_ERROR_CYCLE);
  CHECK_CONTAINS(device.error().message, "0 -> 2999 -> 0");
}

TEST(a_long_cycle_is_shortened_in_the_message) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    for (int task = 0; task < 100; ++task) device.add_task(0);
    for (int task = 0; task < 100; ++task) device.add_edge(task, (task + 1) % 100);
    return 0;
  });
  CHECK_EQUAL(status, PTO_ERROR_CYCLE);
  CHECK_CONTAINS(device.error().message, "a cycle of 100 tasks: 0 -> 1 -> 2 ");
  CHECK_CONTAINS(device.error().message, "-> 12 -> ... -> 0");
}

// Invariant: The user sees the first error of a run. Later calls change nothing.
TEST(the_first_usage_error_is_kept) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  CHECK_EQUAL(device.run([&] {
    device.add_task(0);
    CHECK_EQUAL(device.add_edge(0, 0), PTO_ERROR_CYCLE);
    CHECK_EQUAL(device.add_task(0), -1);
    CHECK_EQUAL(device.add_edge(5, 6), PTO_ERROR_CYCLE);
    return 3;
  }),
              PTO_ERROR_CYCLE);
  CHECK_CONTAINS(device.error().message, "edge 0 -> 0 makes the task wait for itself");
  CHECK_EQUAL(device.run([&] { return device.add_edge(0, 4), 0; }), PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message,
                 "edge 0 -> 4 names a task that does not exist: there are 0");
  CHECK_EQUAL(device.run([&] { return device.add_task(9), 0; }), PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message,
                 "no kernel is registered under function id 9 (requested by task 0); "
                 "registered function ids: 0, 1; use a registered id, or register the kernel "
                 "under that id");
  CHECK_EQUAL(device.error().func_id, 9);
  CHECK_EQUAL(device.run([&] { return device.add_task(0, {}, 2), 0; }), PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "has core type 2; use 0 (AIC) or 1 (AIV)");
  CHECK_EQUAL(device.run([&] { return device.publish(1), 0; }), PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "publish_task got task 1, which does not exist");
  check_works(recorder);
}

TEST(arguments_up_to_the_limit) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  std::vector<uint64_t> args(PTO_MAX_KERNEL_ARGS, 7);
  CHECK_EQUAL(device.run([&] { return device.add_task(0, args), 0; }), PTO_OK);
  args.push_back(7);
  CHECK_EQUAL(device.run([&] { return device.add_task(0, args), 0; }), PTO_ERROR_CAPACITY);
  CHECK_CONTAINS(device.error().message,
                 "task 0 (function 0) has 65 arguments; at most 64 are possible");
  CHECK_EQUAL(device.error().value, 65u);
  CHECK_EQUAL(device.error().limit, 64u);
  check_works(recorder);
}

TEST(scopes_are_refused) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  const pto_status status = device.run([&] {
    CHECK_EQUAL(device.api().scope_begin(device.runtime(), nullptr, -1), PTO_ERROR_UNSUPPORTED);
    return 0;
  });
  CHECK_EQUAL(status, PTO_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(device.error().message, "host_build_graph has no scopes");
}

TEST(the_core_type_of_the_call_overrides_the_kernel) {
  TestDevice device(kHost);
  device.add_kernel(0, PTO_CORE_AIC, [](const pto_payload&) { return 0; });
  CHECK_EQUAL(device.run([&] { return device.add_task(0, {}, PTO_CORE_AIV), 0; }), PTO_OK);
  CHECK_EQUAL(device.report().cores[0].tasks, 0u);
  CHECK_EQUAL(device.report().cores[8].tasks, 1u);
}

TEST(failing_kernel_ends_the_run) {
  TestDevice device(kHost);
  bool is_healthy = false;
  int runs = 0;
  device.add_kernel(0, PTO_CORE_AIC,
                    [&](const pto_payload&) { return ++runs, is_healthy ? 0 : 1; });
  const auto build = [&] {
    device.add_task(0);
    device.add_task(0);
    device.add_edge(0, 1);
    return 0;
  };
  CHECK_EQUAL(device.run(build), PTO_ERROR_KERNEL);
  CHECK_EQUAL(device.error().task, 0);
  CHECK_EQUAL(device.error().core, 0);
  CHECK_EQUAL(runs, 1);
  is_healthy = true;
  CHECK_EQUAL(device.run(build), PTO_OK);
}

TEST(an_abort_is_the_error_of_the_run) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  pto_error cause{};
  cause.status = PTO_ERROR_TIMEOUT;
  std::strcpy(cause.message, "too slow");
  const auto build = [&](const pto_error* error) {
    return [&device, error] {
      device.add_task(0);
      device.backend().abort(device.device(), error, 0);
      return 0;
    };
  };
  CHECK_EQUAL(device.run(build(&cause)), PTO_ERROR_TIMEOUT);
  CHECK_CONTAINS(device.error().message, "too slow");
  CHECK_EQUAL(device.run(build(nullptr)), PTO_ERROR_ABORTED);
  check_works(recorder);
}

// Invariant: A second run of the same graph reserves no memory.
TEST(a_second_million_tasks_needs_no_more_memory) {
  TestDevice device(kHost);
  uint64_t runs = 0;
  device.add_kernel(0, PTO_CORE_AIV, [&](const pto_payload&) { return ++runs, 0; });
  uint64_t reserved = 0;
  for (int round = 0; round < 2; ++round) {
    runs = 0;
    CHECK_EQUAL(device.run([&] {
      for (int task = 0; task < 1000000; ++task) {
        device.add_task(0, {1, 2, 3});
        if (task >= 8) device.add_edge(task - 8, task);
      }
      return 0;
    }),
                PTO_OK);
    CHECK_EQUAL(runs, 1000000u);
    CHECK(round == 0 || device.statistic("reserved_bytes") == reserved);
    reserved = device.statistic("reserved_bytes");
  }
  CHECK(reserved < 160u << 20);
}

TEST(wide_fan_out_and_fan_in) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  constexpr int kWide = 200000;
  const pto_status status = device.run([&] {
    for (int task = 0; task < kWide + 2; ++task) device.add_task(1);
    for (int task = 1; task <= kWide; ++task) {
      device.add_edge(0, task);
      device.add_edge(task, kWide + 1);
    }
    return 0;
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(recorder.order.size(), kWide + 2u);
  CHECK_EQUAL(recorder.order.front(), 0u);
  CHECK_EQUAL(recorder.order.back(), kWide + 1u);
}

TEST(create_checks_its_options) {
  const TestDevice unknown(kHost, {{"speed", "9"}});
  CHECK_EQUAL(unknown.status(), PTO_ERROR_USAGE);
  CHECK_CONTAINS(unknown.error().message, "has no option \"speed\"; its only option is build_mode");
  const TestDevice wrong(kHost, {{"build_mode", "2"}});
  CHECK_EQUAL(wrong.status(), PTO_ERROR_USAGE);
  CHECK_CONTAINS(wrong.error().message, "build_mode is \"2\"; use 1");
}

TEST(a_refusal_needs_no_error_record) {
  pto_platform platform{};
  const pto_option option{"speed", "9"};
  void* runtime = nullptr;
  const pto_runtime_api* api = load_variant(kHost);
  CHECK_EQUAL(api->create(&platform, &option, 1, &runtime, nullptr), PTO_ERROR_LOAD);
  platform.abi_version = PTO_ABI_VERSION;
  platform.struct_size = sizeof platform;
  CHECK_EQUAL(api->create(&platform, &option, 1, &runtime, nullptr), PTO_ERROR_USAGE);
}

TEST(kernels_are_checked) {
  TestDevice device(kHost);
  const auto body = [](const pto_payload&) { return 0; };
  device.add_kernel(4096, PTO_CORE_AIC, body);
  CHECK_EQUAL(device.run([] { return 0; }), PTO_ERROR_CAPACITY);
  CHECK_CONTAINS(device.error().message, "function id 4096 is out of range; use 0 to 4095");
  TestDevice twice(kHost);
  twice.add_kernel(3, PTO_CORE_AIC, body);
  twice.add_kernel(3, PTO_CORE_AIC, body);
  CHECK_EQUAL(twice.run([] { return 0; }), PTO_ERROR_USAGE);
  CHECK_CONTAINS(twice.error().message, "two kernels have the function id 3");
}

// Runs the entries of a compiled orchestration library.

struct Case {
  std::vector<float> in = {1, 2, 3, 4};
  std::vector<float> out = {0, 0, 0, 0};
  TestDevice device{kHost};

  Case() { add_float_kernels(device); }

  pto_status run(const std::string& entry) {
    return device.run_library(orchestration(kHost, entry),
                              {reinterpret_cast<uint64_t>(in.data()),
                               reinterpret_cast<uint64_t>(out.data()), in.size() * sizeof(float)});
  }

  void expect(const std::string& entry, pto_status status, const std::string& part) {
    CHECK_EQUAL(run(entry), status);
    CHECK_CONTAINS(device.error().message, part);
    CHECK_EQUAL(run("diamond"), PTO_OK);
  }
};

TEST(orchestrations_compute_correct_results) {
  for (const char* entry : {"diamond", "diamond_void", "query_graph"}) {
    Case graph;
    const pto_status status = graph.run(entry);
    if (status != PTO_OK) check::fail(entry, 0, graph.device.error().message);
    CHECK(graph.out == std::vector<float>({6, 12, 20, 30}));
    CHECK_EQUAL(graph.device.statistic("tensor_pairs"), 1u);
  }
}

TEST(orchestration_errors) {
  Case graph;
  graph.expect("returns_seven", PTO_ERROR_ORCHESTRATION, "the orchestration returned 7, not 0");
  CHECK_EQUAL(graph.run("throws"), PTO_ERROR_ORCHESTRATION);
  CHECK_CONTAINS(graph.device.error().message, "threw an exception: no such layer");
  graph.expect("ignores_errors", PTO_ERROR_USAGE, "function id 55");
  graph.expect("negative_arguments", PTO_ERROR_USAGE, "got -3 arguments");
  graph.expect("null_arguments", PTO_ERROR_USAGE, "null pointer for 2 arguments");
  graph.expect("wrong_core_type", PTO_ERROR_USAGE, "use 0 (AIC) or 1 (AIV)");
  graph.expect("null_tensor_pair", PTO_ERROR_USAGE, "null host pointer for 8 bytes");
  graph.expect("no_device_memory", PTO_ERROR_MEMORY, "sim.memory_bytes on the simulator");
  graph.expect("frees_twice", PTO_ERROR_ADDRESS, "which is not a live buffer");
  graph.expect("copies_too_much", PTO_ERROR_ADDRESS, "copy_to_device of 64 bytes");
}

TEST(library_of_the_other_variant_is_refused) {
  Case graph;
  const std::string path = orchestration("aicpu_build_graph", "diamond");
  CHECK_EQUAL(graph.device.run_library(path, {}), PTO_ERROR_LOAD);
  CHECK_CONTAINS(graph.device.error().message, "so it was not built for host_build_graph");
}

TEST(explain_describes_the_progress_of_the_run) {
  Recorder recorder;
  TestDevice& device = recorder.device;
  char text[256];
  device.run([&] {
    device.add_task(0);
    device.add_task(0);
    device.add_edge(0, 1);
    const size_t length = device.api().explain(device.runtime(), text, sizeof text);
    CHECK_EQUAL(length, std::strlen(text));
    return 0;
  });
  CHECK_EQUAL(std::string(text),
              "host_build_graph: 2 tasks, 0 completed, 0 on cores, 2 waiting; "
              "the orchestration has not ended.");
  char cut[10];
  CHECK_EQUAL(device.api().explain(device.runtime(), cut, sizeof cut), 9u);
}

TEST(the_entry_accepts_only_its_own_variant) {
  const pto_runtime_api* api = load_variant(kHost);
  CHECK_EQUAL(std::string(api->variant), kHost);
  CHECK_EQUAL(api->capabilities,
              uint32_t{PTO_RUNTIME_HOST_ORCHESTRATION | PTO_RUNTIME_EXPLICIT_EDGES});
  CHECK(load_entry(kHost)("aicpu_build_graph") == nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
