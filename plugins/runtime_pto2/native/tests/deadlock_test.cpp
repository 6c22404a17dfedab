// Runs that cannot continue. The error must name the exhausted resource and the smallest setting
// that suffices.
#include "check.hpp"
#include "one_thread.hpp"
#include "program.hpp"

namespace {

using Options = OneThread::Options;

void check_blames_line(const pto_error& error, int32_t line) {
  CHECK_EQUAL(std::string(error.file), "/project/graph.cpp");
  CHECK_EQUAL(error.line, line);
  if (error.status != PTO_ERROR_DEADLOCK) return;
  CHECK_CONTAINS(error.message, "graph.cpp:" + std::to_string(line));
}

// Checks that the device runs another graph, for use after an error.
void check_is_usable(OneThread& device) {
  CHECK_EQUAL(device.run([&] { Program(device).submit({kKiB}); }), PTO_OK);
}

TEST(eight_tasks_in_one_scope_do_not_fit_a_window_of_four) {
  OneThread device(24, {{"task_window", "4"}});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t task = 0; task < 8; ++task) CHECK(program.submit({}, {}, 10 + task).task >= 0);
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  const pto_error error = device.error();
  std::printf("  %s\n", error.message);
  CHECK_EQUAL(error.value, 16u);
  CHECK_EQUAL(error.limit, 4u);
  CHECK_EQUAL(error.other_task, PTO_RESOURCE_TASK_RING);
  CHECK_EQUAL(error.core, 0);
  CHECK_EQUAL(error.task, 0);
  check_blames_line(error, 13);
  CHECK_CONTAINS(error.message, "task ring of ring 0");
  CHECK_CONTAINS(error.message, "--set pto2.task_window=16");
  CHECK_CONTAINS(error.message, "PTO2_RING_TASK_WINDOW=16");
  CHECK_CONTAINS(error.message, "task 0 of ring 0 from graph.cpp:10");
  check_is_usable(device);
}

TEST(the_proof_is_the_error_before_the_orchestration_continues) {
  OneThread device(24, {{"task_window", "4"}});
  device.run([&] {
    Program program(device);
    for (int32_t task = 0; task < 3; ++task) program.submit();
    CHECK_EQUAL(device.api().last_error(device.runtime(), nullptr), PTO_OK);
    program.submit();
    CHECK_EQUAL(device.api().last_error(device.runtime(), nullptr), PTO_ERROR_DEADLOCK);
    program.submit();
    CHECK_EQUAL(device.api().last_error(device.runtime(), nullptr), PTO_ERROR_DEADLOCK);
  });
  CHECK(device.log().empty());
}

TEST(three_outputs_of_sixteen_kib_do_not_fit_thirty_two) {
  OneThread device(24, {{"heap", "32768"}});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t task = 0; task < 3; ++task) program.submit({16 * kKiB}, {}, 20 + task);
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  const pto_error error = device.error();
  std::printf("  %s\n", error.message);
  CHECK_EQUAL(error.value, 48 * kKiB);
  CHECK_EQUAL(error.limit, 32 * kKiB);
  check_blames_line(error, 22);
  CHECK_CONTAINS(error.message, "heap ring of ring 0");
  CHECK_CONTAINS(error.message, "--set pto2.heap=49152");
  check_is_usable(device);
}

// The dependency pool has space for the nine edges of one task, but not for a second reservation.
// If the deadlock check and the woken submit both reserved entries, the first reservation would be
// lost and the run would fail.
TEST(space_that_a_deadlock_check_finds_is_reserved_once) {
  static char memory[9 * 64];
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  OneThread device(24, {{"heap", "4096"}, {"dep_pool", "16"}});
  device.loses_signals = true;
  const pto_status status = device.run([&] {
    Program program(device);
    std::vector<pto_tensor_data> written;
    for (uint64_t task = 0; task < 9; ++task) {
      written.push_back(Program::tensor_at(base + task * 64, 64));
      program.write(written.back());
    }
    for (int32_t round = 0; round < 20; ++round) {
      program.scope([&] { program.submit({3 * kKiB}, written); });
    }
  });
  if (status != PTO_OK) std::printf("  %s\n", device.error().message);
  CHECK_EQUAL(status, PTO_OK);
  CHECK(device.statistic("blocked_on_heap") + device.statistic("blocked_on_pool") > 10);
}

TEST(a_planned_run_counts_what_it_holds) {
  OneThread device(24, {{"task_window", "8"}});
  const pto_status status = device.run([&] {
    Program program(device);
    for (const int32_t readers : {4, 12, 3}) {
      program.scope([&] {
        const auto first = program.submit({kKiB});
        for (int32_t task = 0; task < readers; ++task) program.submit({kKiB}, {first.outputs[0]});
      });
    }
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  CHECK_EQUAL(device.statistic("ring1_dependencies"), 0u);
  CHECK_EQUAL(device.statistic("ring1_heap_bytes"), 0u);
}

TEST(a_run_after_a_deadlock_shows_nothing_of_it) {
  OneThread device(24, {{"task_window", "8"}});
  const auto fill = [&] {
    Program program(device);
    const auto first = program.submit({kKiB});
    for (int32_t task = 0; task < 20; ++task) program.submit({}, {first.outputs[0]});
  };
  CHECK_EQUAL(device.run(fill), PTO_ERROR_DEADLOCK);
  std::string text;
  CHECK_EQUAL(device.run([&] { text = device.explain(); }), PTO_OK);
  CHECK(text.find("waits for") == std::string::npos);
  CHECK(text.find("on cores:") == std::string::npos);
}

TEST(a_run_after_an_abort_shows_nothing_of_it) {
  OneThread device(24, {});
  const auto fill = [&] {
    Program program(device);
    const auto first = program.submit({kKiB});
    program.submit({}, {first.outputs[0]});
    program.scope([] {});  // publishes the task
    device.api().schedule_step(device.runtime(), 0);
    CHECK_CONTAINS(device.explain(), "waits for 1 producers");
    device.api().abort(device.runtime(), nullptr);
  };
  CHECK_EQUAL(device.run(fill), PTO_ERROR_ABORTED);
  std::string text;
  CHECK_EQUAL(device.run([&] { text = device.explain(); }), PTO_OK);
  CHECK(text.find("waits for") == std::string::npos);
  CHECK(text.find("on cores:") == std::string::npos);
}

TEST(a_tensor_of_an_earlier_run_is_not_of_this_one) {
  OneThread device(24, {});
  pto_tensor_data kept{};
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    program.submit({2 * kKiB});
    kept = program.submit({kKiB}).outputs[0];
  }),
              PTO_OK);
  const auto fill = [&] {
    Program program(device);
    program.submit({kKiB});
    program.submit({kKiB});
    program.submit({}, {kept}, 50);
  };
  CHECK_EQUAL(device.run(fill), PTO_ERROR_USAGE);
  std::printf("  %s\n", device.error().message);
  CHECK_CONTAINS(device.error().message, "not among the outputs of task 1 of ring 0");
  check_is_usable(device);
}

TEST(an_output_larger_than_the_heap_can_never_fit) {
  OneThread device(24, {{"heap", "1024"}});
  const pto_status status = device.run([&] { Program(device).submit({32 * kKiB}, {}, 30); });
  CHECK_EQUAL(status, PTO_ERROR_CAPACITY);
  std::printf("  %s\n", device.error().message);
  CHECK_EQUAL(device.error().value, 32 * kKiB);
  CHECK_EQUAL(device.error().limit, kKiB);
  check_is_usable(device);
}

TEST(eight_nested_scopes_of_three_tasks_fill_the_last_ring) {
  OneThread device(24, {{"task_window", "4"}});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t depth = 1; depth <= 8; ++depth) {
      program.begin_scope();
      for (int32_t task = 0; task < 3; ++task) program.submit({}, {}, 100 * depth + task);
    }
    for (int32_t depth = 1; depth <= 8; ++depth) program.end_scope();
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  const pto_error error = device.error();
  std::printf("  %s\n", error.message);
  CHECK_EQUAL(error.value, 32u);
  CHECK_EQUAL(error.core, 3);
  check_blames_line(error, 400);
  CHECK_CONTAINS(error.message, "ring 3 (scopes of depth 3 and deeper)");
  CHECK_CONTAINS(error.message, "--set pto2.task_window=32");
  check_is_usable(device);
}

TEST(a_hundred_and_twenty_eight_producers_do_not_fit_a_pool_of_sixteen) {
  static char memory[128 * 64];
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  const auto build = [&](OneThread& device) {
    Program program(device);
    for (uint64_t task = 0; task < 128; ++task) {
      program.write(Program::tensor_at(base + task * 64, 64));
    }
    program.submit({}, {Program::tensor_at(base, sizeof memory)}, 40);
  };
  OneThread device(24, {{"dep_pool", "16"}});
  CHECK(device.run([&] { build(device); }) != PTO_OK);
  const pto_error error = device.error();
  std::printf("  %s\n", error.message);
  CHECK_CONTAINS(error.message, "dependency pool");
  CHECK_CONTAINS(error.message, "129");
  check_blames_line(error, 40);
  check_is_usable(device);

  OneThread too_small(24, {{"dep_pool", "128"}});
  CHECK(too_small.run([&] { build(too_small); }) != PTO_OK);
  OneThread large_enough(24, {{"dep_pool", "129"}});
  CHECK_EQUAL(large_enough.run([&] { build(large_enough); }), PTO_OK);
}

TEST(a_twenty_fifth_cluster_is_more_than_any_device_has) {
  OneThread device(24, {});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t cluster = 0; cluster < 25; ++cluster) {
      CHECK(program.allocate_cluster(50 + cluster) >= 0);
    }
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  const pto_error error = device.error();
  std::printf("  %s\n", error.message);
  check_blames_line(error, 74);
  CHECK_EQUAL(error.value, 25u);
  CHECK_EQUAL(error.other_task, PTO_RESOURCE_CLUSTERS);
  CHECK_EQUAL(error.core, -1);
  CHECK_EQUAL(error.limit, 24u);
  CHECK_CONTAINS(error.message, "no cluster is free");
  CHECK_CONTAINS(error.message, "No setting suffices");
  check_is_usable(device);
}

TEST(a_long_path_is_cut_at_its_beginning) {
  const std::string path = std::string(400, 'd') + "/graph.cpp";
  OneThread device(24, {});
  const pto_status status = device.run([&] {
    for (int32_t cluster = 0; cluster < 25; ++cluster) {
      device.api().allocate_cluster(device.runtime(), path.c_str(), 7);
    }
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  const pto_error error = device.error();
  CHECK_EQUAL(std::string(error.file), path.substr(path.size() - (sizeof error.file - 1)));
}

// The program uses each cluster id as an index, so the ids of planned clusters must be valid
// indices, too.
TEST(planned_clusters_have_the_smallest_free_ids) {
  OneThread device(24, {{"task_window", "4"}});
  int32_t used[PTO_MAX_BLOCKS] = {};
  const pto_status status = device.run([&] {
    Program program(device);
    const int32_t first = program.allocate_cluster();
    program.free_cluster(program.allocate_cluster());
    for (int32_t task = 0; task < 5; ++task) program.submit({}, {}, 1, first);
    for (int32_t round = 0; round < 3; ++round) {
      program.scope([&] {
        for (uint32_t cluster = 1; cluster < PTO_MAX_BLOCKS; ++cluster) {
          const int32_t id = program.allocate_cluster();
          CHECK_EQUAL(id, static_cast<int32_t>(cluster));
          ++used[id];
          program.submit({}, {}, 1, id);
        }
      });
    }
    CHECK_EQUAL(program.allocate_cluster(), 1);
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  CHECK_EQUAL(device.error().other_task, PTO_RESOURCE_TASK_RING);
  CHECK_CONTAINS(device.error().message, "--set pto2.task_window=32");
  CHECK(std::strstr(device.error().message, "block_dim") == nullptr);
  CHECK_EQUAL(used[0], 0);
  for (uint32_t cluster = 1; cluster < PTO_MAX_BLOCKS; ++cluster) CHECK_EQUAL(used[cluster], 3);
}

TEST(more_blocks_would_have_been_enough_clusters) {
  OneThread device(3, {});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t round = 0; round < 3; ++round) {
      program.scope([&] {
        for (int32_t cluster = 0; cluster < 3 + round; ++cluster) program.allocate_cluster();
        program.free_cluster(program.allocate_cluster());
      });
    }
  });
  CHECK_EQUAL(status, PTO_ERROR_DEADLOCK);
  std::printf("  %s\n", device.error().message);
  CHECK_EQUAL(device.error().value, 6u);
  CHECK_CONTAINS(device.error().message, "--set block_dim=6");
}

TEST(a_tensor_map_pool_that_is_too_small_is_named) {
  static char memory[64 * 64];
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  const auto build = [&](OneThread& device) {
    Program program(device);
    for (uint64_t task = 0; task < 40; ++task) {
      program.write(Program::tensor_at(base + task * 64, 64));
    }
  };
  OneThread device(24, {{"tensor_map_pool", "16"}});
  CHECK_EQUAL(device.run([&] { build(device); }), PTO_ERROR_DEADLOCK);
  std::printf("  %s\n", device.error().message);
  CHECK_CONTAINS(device.error().message, "tensor map");
  const std::string needed = std::to_string(device.error().value);
  CHECK_CONTAINS(device.error().message, "--set pto2.tensor_map_pool=" + needed);
  OneThread large_enough(24, {{"tensor_map_pool", needed}});
  CHECK_EQUAL(large_enough.run([&] { build(large_enough); }), PTO_OK);
  const std::string smaller = std::to_string(device.error().value - 1);
  OneThread too_small(24, {{"tensor_map_pool", smaller}});
  CHECK_EQUAL(too_small.run([&] { build(too_small); }), PTO_ERROR_DEADLOCK);
}

// The plan cannot contain the requirements of calls that the orchestration did not make.
TEST(an_orchestration_that_ends_early_tells_a_lower_bound) {
  OneThread device(24, {{"task_window", "8"}});
  const auto nine = [&](auto then) {
    CHECK_EQUAL(device.run([&] {
      Program program(device);
      for (int32_t task = 0; task < 9; ++task) program.submit();
      then(program);
      for (int32_t task = 0; task < 40; ++task) program.submit();
    }),
                PTO_ERROR_DEADLOCK);
    return std::string(device.error().message);
  };
  const std::string needed = "Needed, at least: task window 16 slots";
  CHECK_CONTAINS(nine([](Program& program) { program.free_cluster(5); }), needed);
  CHECK_CONTAINS(nine([](Program& program) { program.end_scope(); }), needed);
  CHECK_CONTAINS(nine([&](Program&) { device.api().add_edge(device.runtime(), 0, 0); }), needed);
  CHECK_CONTAINS(nine([](Program&) {}), "Smallest that suffices: task window 64 slots");
  device.result = 5;
  CHECK_CONTAINS(nine([](Program&) {}), "Needed, at least: task window 64 slots");
  device.result = 0;
  check_is_usable(device);
}

TEST(all_that_is_too_small_is_named_at_once) {
  OneThread device(24, {{"task_window", "4"}, {"heap", "4096"}});
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    for (int32_t task = 0; task < 12; ++task) program.submit({kKiB});
  }),
              PTO_ERROR_DEADLOCK);
  std::printf("  %s\n", device.error().message);
  CHECK_CONTAINS(device.error().message, "--set pto2.task_window=16");
  CHECK_CONTAINS(device.error().message, "--set pto2.heap=12288");
}

TEST(looking_at_planned_data_makes_the_answer_a_lower_bound) {
  OneThread device(24, {{"task_window", "4"}});
  device.run([&] {
    Program program(device);
    for (int32_t task = 0; task < 4; ++task) {
      const Program::Result result = program.submit({kKiB});
      CHECK(result.outputs[0].buffer.addr != 0);
      if (task == 3) {
        CHECK_EQUAL(*reinterpret_cast<volatile char*>(result.outputs[0].buffer.addr), 0);
      }
    }
  });
  std::printf("  %s\n", device.error().message);
  CHECK_CONTAINS(device.error().message, "at least");
}

// The needs of calls after the one that waits are then unknown.
TEST(without_planning_the_sizes_are_lower_bounds) {
  struct Case {
    Options sizes;
    uint64_t output_bytes;
    uint64_t needed;
    const char* words;
  };
  const Case cases[] = {
      {{{"task_window", "4"}}, 0, 8, "Needed, at least: task window 8 slots (4 is too small"},
      {{{"heap", "4096"}}, kKiB, 5 * kKiB, "Needed, at least: heap 5120 bytes (4096 is too small"},
  };
  for (const Case& each : cases) {
    OneThread device(24, each.sizes);
    device.forbid_planning();
    int32_t accepted = 0;
    CHECK_EQUAL(device.run([&] {
      Program program(device);
      for (int32_t task = 0; task < 40; ++task) {
        const std::vector<uint64_t> outputs(each.output_bytes != 0 ? 1 : 0, each.output_bytes);
        if (program.submit(outputs).task >= 0) ++accepted;
      }
    }),
                PTO_ERROR_DEADLOCK);
    const pto_error error = device.error();
    std::printf("  %s\n", error.message);
    CHECK(accepted < 5);
    CHECK_EQUAL(error.value, each.needed);
    CHECK_CONTAINS(error.message, each.words);
    CHECK_CONTAINS(error.message, "task 0 of ring 0");
    check_is_usable(device);
  }
}

TEST(without_planning_a_run_with_too_many_clusters_ends) {
  OneThread device(2, {});
  device.forbid_planning();
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    for (int32_t index = 0; index < 6; ++index) program.allocate_cluster();
  }),
              PTO_ERROR_DEADLOCK);
  CHECK_CONTAINS(device.error().message, "Needed, at least: block_dim 3 blocks");
  check_is_usable(device);
}

TEST(what_fits_is_no_deadlock_however_often_it_blocks) {
  OneThread device(24, {{"task_window", "4"}, {"heap", "4096"}});
  const pto_status status = device.run([&] {
    Program program(device);
    for (int32_t scope = 0; scope < 1000; ++scope) {
      program.scope([&] {
        for (int32_t task = 0; task < 3; ++task) program.submit({kKiB});
      });
    }
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(device.statistic("tasks"), 3000u);
  CHECK_EQUAL(device.statistic("ring1_tasks_peak"), 3u);
  CHECK(device.statistic("blocked_on_tasks") + device.statistic("blocked_on_heap") > 0);
}

TEST(a_long_wait_is_logged_with_its_numbers) {
  OneThread device(24, {{"task_window", "4"}});
  device.clock_step_ns = 200'000'000;
  CHECK_EQUAL(device.run([&] {
    Program program(device);
    for (int32_t scope = 0; scope < 2; ++scope) {
      program.scope([&] {
        for (int32_t task = 0; task < 3; ++task) program.submit({}, {}, 80 + scope);
      });
    }
  }),
              PTO_OK);
  CHECK(!device.warnings().empty());
  std::printf("  %s\n", device.warnings()[0].c_str());
  CHECK_CONTAINS(device.warnings()[0], "[TaskRing] BLOCKED (Flow Control): ring=1, current=3");
  CHECK_CONTAINS(device.warnings()[0], "graph.cpp:81");
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
