// The reports about a run: counters by name, and a text about its state.
#include "check.hpp"
#include "one_thread.hpp"
#include "program.hpp"

namespace {

TEST(counters_of_a_small_graph) {
  OneThread device(24, {});
  const pto_status status = device.run([&] {
    Program program(device);
    program.scope([&] {
      const auto first = program.submit({kKiB, 3 * kKiB});
      const auto left = program.submit({kKiB}, {first.outputs[0]});
      const auto right = program.submit({kKiB}, {first.outputs[1]});
      program.submit({}, {left.outputs[0], right.outputs[0]});
    });
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(device.statistic("tasks"), 4u);
  CHECK_EQUAL(device.statistic("edges_read_after_write"), 4u);
  CHECK_EQUAL(device.statistic("edges_write_after_write"), 0u);
  CHECK_EQUAL(device.statistic("owner_references"), 4u);
  CHECK_EQUAL(device.statistic("lookups"), 4u);
  CHECK(device.statistic("lookup_nodes_visited") >= 4);
  CHECK_EQUAL(device.statistic("ring1_scopes"), 1u);
  CHECK_EQUAL(device.statistic("ring1_heap_bytes_peak"), 6 * kKiB);
  CHECK(device.statistic("ring1_tasks_peak") <= 4);
  CHECK_EQUAL(device.statistic("ring0_tasks_peak"), 0u);
  CHECK_EQUAL(device.statistic("tasks_retired"), 4u);
  CHECK_EQUAL(device.statistic("dispatches_0"), 4u);
}

TEST(writers_after_readers_are_counted_under_full_hazards) {
  static char memory[64];
  const pto_tensor_data tensor = Program::tensor_at(reinterpret_cast<uint64_t>(memory), 64);
  OneThread device(24, {});
  const auto build = [&] {
    Program program(device);
    program.write(tensor);
    program.submit({}, {tensor});
    program.submit({}, {tensor});
    program.write(tensor);
  };
  CHECK_EQUAL(device.run(build, PTO_HAZARDS_FULL), PTO_OK);
  CHECK_EQUAL(device.statistic("edges_read_after_write"), 2u);
  CHECK_EQUAL(device.statistic("edges_write_after_read"), 2u);
  CHECK_EQUAL(device.statistic("edges_write_after_write"), 1u);
  CHECK_EQUAL(device.run(build, PTO_HAZARDS_RAW), PTO_OK);
  CHECK_EQUAL(device.statistic("edges_write_after_read"), 0u);
}

TEST(an_edge_counts_once_whatever_number_of_regions_it_is_for) {
  static char memory[64];
  const pto_tensor_data tensor = Program::tensor_at(reinterpret_cast<uint64_t>(memory), 64);
  OneThread device(24, {});
  const auto build = [&] {
    Program program(device);
    program.write(tensor);
    program.submit({}, {tensor, tensor, tensor});
    program.write(tensor);
    const auto made = program.submit({kKiB, kKiB});
    program.submit({}, {made.outputs[0], made.outputs[0], made.outputs[1]});
  };
  CHECK_EQUAL(device.run(build, PTO_HAZARDS_FULL), PTO_OK);
  CHECK_EQUAL(device.statistic("edges_read_after_write"), 2u);
  CHECK_EQUAL(device.statistic("edges_write_after_read"), 1u);
  CHECK_EQUAL(device.statistic("edges_write_after_write"), 1u);
  CHECK_EQUAL(device.statistic("owner_references"), 1u);
}

// The tensor map processes the accesses of a block task only once, whatever its number of blocks.
TEST(the_blocks_of_one_submit_are_looked_up_and_remembered_once) {
  static char memory[128];
  for (const uint32_t blocks : {1u, 8u, 24u}) {
    OneThread device(24, {});
    pto_tensor_data one = Program::tensor_at(reinterpret_cast<uint64_t>(memory), 64);
    pto_tensor_data two = Program::tensor_at(reinterpret_cast<uint64_t>(memory + 64), 64);
    const auto build = [&] {
      Program program(device);
      program.write(one);
      pto_param params[2] = {};
      params[0].tag = params[1].tag = PTO_TAG_INOUT;
      params[0].value.tensor = &one;
      params[1].value.tensor = &two;
      pto_tensor_task task{};
      task.core_type = PTO_CORE_AIV;
      task.block_dim = blocks;
      task.num_params = 2;
      task.params = params;
      CHECK(device.api().submit_tensors(device.runtime(), &task) >= 0);
      program.submit({}, {one, two});
    };
    CHECK_EQUAL(device.run(build), PTO_OK);
    CHECK_EQUAL(device.statistic("tasks"), blocks + 2);
    CHECK_EQUAL(device.statistic("lookups"), 4u);
    CHECK_EQUAL(device.statistic("edges"), 2u);
    CHECK_EQUAL(device.statistic("tensor_map_entries_peak"), 2u);
  }
}

TEST(only_an_exhausted_tensor_map_is_back_pressure) {
  static char memory[64];
  const pto_tensor_data tensor = Program::tensor_at(reinterpret_cast<uint64_t>(memory), 64);
  const auto build = [&](OneThread& device) {
    return [&] {
      Program program(device);
      for (int scope = 0; scope < 200; ++scope) {
        program.scope([&] { program.submit({kKiB}, {tensor}); });
      }
    };
  };
  for (const char* waits_for : {"task_window", "heap"}) {
    OneThread device(24, {{waits_for, std::string(waits_for) == "heap" ? "4096" : "4"}});
    CHECK_EQUAL(device.run(build(device)), PTO_OK);
    CHECK(device.statistic("entries_cleaned_by_batch") > 100);
    CHECK_EQUAL(device.statistic("entries_cleaned_by_back_pressure"), 0u);
  }
  OneThread small(24, {{"tensor_map_pool", "16"}});
  CHECK_EQUAL(small.run(build(small)), PTO_OK);
  CHECK(small.statistic("entries_cleaned_by_back_pressure") > 100);
  OneThread ample(24, {});
  CHECK_EQUAL(ample.run(build(ample)), PTO_OK);
  CHECK_EQUAL(ample.statistic("entries_cleaned_by_back_pressure"), 0u);
}

TEST(peaks_and_waits_are_of_one_run) {
  OneThread device(24, {{"task_window", "4"}});
  const auto build = [&] {
    Program program(device);
    for (int scope = 0; scope < 10; ++scope) {
      program.scope([&] {
        for (int task = 0; task < 3; ++task) program.submit();
      });
    }
  };
  CHECK_EQUAL(device.run(build), PTO_OK);
  CHECK_EQUAL(device.statistic("blocked_on_tasks"), 9u);
  CHECK_EQUAL(device.run([&] { Program(device).submit(); }), PTO_OK);
  CHECK_EQUAL(device.statistic("blocked_on_tasks"), 0u);
  CHECK_EQUAL(device.statistic("blocked_on_tasks_ns"), 0u);
  CHECK_EQUAL(device.statistic("ring1_tasks_peak"), 0u);
}

TEST(a_run_that_waits_names_the_call) {
  OneThread device(24, {{"task_window", "4"}});
  std::vector<std::string> texts;
  device.kernel = [&](const pto_payload&) { texts.push_back(device.explain()); };
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    for (int scope = 0; scope < 2; ++scope) {
      program.scope([&] {
        for (int task = 0; task < 3; ++task) program.submit({}, {}, 70 + scope);
      });
    }
  }),
              PTO_OK);
  CHECK_EQUAL(texts.size(), 6u);
  CHECK_CONTAINS(texts[0], "tensormap_and_ringbuffer: ");
  CHECK_CONTAINS(texts[0], "waits for 1 slot of the task ring of ring 1");
  CHECK_CONTAINS(texts[0], "graph.cpp:71");
  CHECK_CONTAINS(texts[5], "the orchestration has ended");
  CHECK_CONTAINS(device.explain(), "6 completed");
}

TEST(after_a_deadlock_the_text_holds_the_proof) {
  OneThread device(24, {{"task_window", "4"}});
  std::string texts;
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    for (int task = 0; task < 5; ++task) program.submit();
    texts = device.explain();
  }),
              PTO_ERROR_DEADLOCK);
  CHECK_CONTAINS(texts, "deadlock: the task ring of ring 0");
}

}  // namespace
