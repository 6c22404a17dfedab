// The effects of a submit: edges by tag, owners, blocks, keys, payloads, scopes, clusters.
#include <atomic>
#include <set>

#include "check.hpp"
#include "one_thread.hpp"
#include "submission.hpp"

namespace {

using Edges = std::set<std::pair<int64_t, int64_t>>;

alignas(1024) char memory[1 << 16];
const uint64_t kBase = reinterpret_cast<uint64_t>(memory);

// Return the id of a task in ring 0, which belongs to the run: four times its number.
constexpr int64_t id(int64_t number) {
  return number << 2;
}

TEST(tags_order_tasks_as_the_table_says) {
  struct Row {
    uint32_t first, second;
    bool raw, full;
  };
  const Row rows[] = {
      {PTO_TAG_INPUT, PTO_TAG_INPUT, false, false},
      {PTO_TAG_INPUT, PTO_TAG_OUTPUT, false, true},
      {PTO_TAG_INPUT, PTO_TAG_INOUT, false, true},
      {PTO_TAG_INPUT, PTO_TAG_OUTPUT_EXISTING, false, false},
      {PTO_TAG_INPUT, PTO_TAG_NO_DEP, false, false},
      {PTO_TAG_OUTPUT, PTO_TAG_INPUT, true, true},
      {PTO_TAG_OUTPUT, PTO_TAG_OUTPUT, false, true},
      {PTO_TAG_OUTPUT, PTO_TAG_INOUT, true, true},
      {PTO_TAG_OUTPUT, PTO_TAG_OUTPUT_EXISTING, false, false},
      {PTO_TAG_OUTPUT, PTO_TAG_NO_DEP, false, false},
      {PTO_TAG_INOUT, PTO_TAG_INPUT, true, true},
      {PTO_TAG_INOUT, PTO_TAG_OUTPUT, false, true},
      {PTO_TAG_INOUT, PTO_TAG_INOUT, true, true},
      {PTO_TAG_OUTPUT_EXISTING, PTO_TAG_INPUT, true, true},
      {PTO_TAG_OUTPUT_EXISTING, PTO_TAG_OUTPUT, false, true},
      {PTO_TAG_NO_DEP, PTO_TAG_INPUT, false, false},
      {PTO_TAG_NO_DEP, PTO_TAG_OUTPUT, false, false},
  };
  for (const Row& row : rows) {
    for (const uint32_t hazards : {PTO_HAZARDS_RAW, PTO_HAZARDS_FULL}) {
      OneThread device(1, {});
      pto_tensor_data tensor = bytes_at(kBase, 4096);
      const pto_status status = device.run(
          [&] {
            Submission(device).tensor(row.first, tensor).submit();
            Submission(device).tensor(row.second, tensor).submit();
          },
          hazards);
      CHECK_EQUAL(status, PTO_OK);
      const bool is_expected = hazards == PTO_HAZARDS_RAW ? row.raw : row.full;
      if (device.edges() == (is_expected ? Edges{{id(0), id(1)}} : Edges{})) continue;
      check::fail(__FILE__, __LINE__,
                  "tags " + std::to_string(row.first) + ", " + std::to_string(row.second) +
                      " under hazards " + std::to_string(hazards));
    }
  }
}

TEST(a_producer_of_several_parameters_is_one_edge) {
  OneThread device(1, {});
  pto_tensor_data left = bytes_at(kBase, 4096, 0, 100);
  pto_tensor_data right = bytes_at(kBase, 4096, 100, 100);
  pto_tensor_data both = bytes_at(kBase, 4096, 50, 100);
  device.run([&] {
    Submission(device).tensor(PTO_TAG_OUTPUT, left).tensor(PTO_TAG_OUTPUT, right).submit();
    Submission(device)
        .tensor(PTO_TAG_INPUT, both)
        .tensor(PTO_TAG_INPUT, left)
        .tensor(PTO_TAG_INPUT, right)
        .submit();
  });
  CHECK(device.edges() == (Edges{{id(0), id(1)}}));
  CHECK_EQUAL(device.statistic("edges"), 1u);
}

TEST(a_fan_in_of_two_hundred_is_two_hundred_edges) {
  OneThread device(1, {});
  pto_tensor_data whole = bytes_at(kBase, 4096);
  device.run([&] {
    for (uint64_t slice = 0; slice < 200; ++slice) {
      pto_tensor_data tensor = bytes_at(kBase, 4096, 20 * slice, 20);
      Submission(device).tensor(PTO_TAG_OUTPUT, tensor).submit();
    }
    Submission(device).tensor(PTO_TAG_INPUT, whole).tensor(PTO_TAG_INPUT, whole).submit();
  });
  CHECK_EQUAL(device.edges().size(), 200u);
  for (int64_t task = 0; task < 200; ++task) CHECK(device.edges().count({id(task), id(200)}) == 1);
}

TEST(sixty_five_thousand_readers_then_a_writer) {
  OneThread device(1, {{"dep_pool", "65536"}, {"task_window", "131072"}});
  pto_tensor_data tensor = bytes_at(kBase, 4096);
  const pto_status status = device.run(
      [&] {
        for (int task = 0; task < 65000; ++task) {
          CHECK(Submission(device).tensor(PTO_TAG_INPUT, tensor).submit() >= 0);
        }
        Submission(device).tensor(PTO_TAG_OUTPUT, tensor).submit();
      },
      PTO_HAZARDS_FULL);
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(device.edges().size(), 65000u);
}

TEST(more_readers_than_the_pool_has_entries_is_an_error_that_names_it) {
  OneThread device(1, {{"dep_pool", "16"}});
  pto_tensor_data tensor = bytes_at(kBase, 4096);
  const auto build = [&](int readers) {
    return device.run(
        [&] {
          for (int task = 0; task < readers; ++task) {
            Submission(device).tensor(PTO_TAG_INPUT, tensor).submit();
          }
          Submission(device).tensor(PTO_TAG_OUTPUT, tensor).submit();
        },
        PTO_HAZARDS_FULL);
  };
  CHECK_EQUAL(build(15), PTO_OK);
  CHECK_EQUAL(build(128), PTO_ERROR_CAPACITY);
  CHECK_CONTAINS(device.error().message, "dependency pool");
  CHECK_CONTAINS(device.error().message, "129");
  CHECK_EQUAL(std::string(device.error().file), kFile);
  CHECK_EQUAL(device.error().line, 7);
}

TEST(outputs_come_from_the_heap_packed_in_slabs) {
  OneThread device(1, {});
  pto_tensor_data a = unplaced(100), b = unplaced(1025), c = unplaced(1);
  device.run([&] {
    const int64_t task =
        Submission(device).tensor(PTO_TAG_OUTPUT, a).tensor(PTO_TAG_OUTPUT, b).submit();
    Submission(device).tensor(PTO_TAG_OUTPUT, c).submit();
    CHECK_EQUAL(a.owner, task);
    CHECK_EQUAL(a.buffer.size, 100u);
  });
  CHECK_EQUAL(a.buffer.addr % 1024, 0u);
  CHECK_EQUAL(b.buffer.addr - a.buffer.addr, 1024u);
  CHECK_EQUAL(c.buffer.addr - b.buffer.addr, 2048u);
}

TEST(a_heap_just_large_enough_serves_any_number_of_scopes) {
  OneThread device(1, {{"heap", "4096"}, {"task_window", "8"}});
  const pto_status status = device.run([&] {
    for (int round = 0; round < 5000; ++round) {
      device.api().scope_begin(device.runtime(), nullptr, -1);
      pto_tensor_data a = unplaced(2048), b = unplaced(2048);
      Submission(device).tensor(PTO_TAG_OUTPUT, a).submit();
      CHECK(Submission(device).tensor(PTO_TAG_INPUT, a).tensor(PTO_TAG_OUTPUT, b).submit() >= 0);
      device.api().scope_end(device.runtime());
    }
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK(device.statistic("ring1_heap_bytes_peak") <= 4096);
  CHECK(device.statistic("ring1_tasks_peak") < 8);
}

// Invariant: A slab is not reused while its scope is open or a task that names it has not
// completed.
TEST(a_buffer_is_held_by_whoever_names_it) {
  OneThread device(1, {});
  pto_tensor_data buffer = unplaced(1024);
  device.run([&] {
    Submission(device).tensor(PTO_TAG_OUTPUT, buffer).submit();
    Submission(device).tensor(PTO_TAG_OUTPUT_EXISTING, buffer).submit();
  });
  CHECK(device.edges().empty());
  CHECK_EQUAL(device.statistic("owner_references"), 1u);
}

// Invariant: Naming a buffer whose scope has ended is an error in every run, independent of timing.
TEST(naming_a_buffer_of_an_ended_scope_is_refused) {
  for (const bool by_address : {false, true}) {
    OneThread device(1, {});
    const pto_status status = device.run([&] {
      pto_tensor_data buffer = unplaced(1024);
      device.api().scope_begin(device.runtime(), nullptr, -1);
      Submission(device).tensor(PTO_TAG_OUTPUT, buffer).submit();
      CHECK(Submission(device).tensor(PTO_TAG_INPUT, buffer).submit() >= 0);
      device.api().scope_end(device.runtime());
      if (by_address) buffer.owner = -1;
      CHECK_EQUAL(Submission(device).tensor(PTO_TAG_NO_DEP, buffer).submit() >= 0, true);
      CHECK_EQUAL(Submission(device).tensor(PTO_TAG_INPUT, buffer).submit(), -1);
    });
    CHECK_EQUAL(status, PTO_ERROR_USAGE);
    CHECK_CONTAINS(device.error().message, "scope that has ended");
  }
}

// Depths 3 and 4 share a ring. A buffer of the ended scope is invalid, although the outer scope in
// the same ring is open.
TEST(the_shared_ring_tells_scopes_apart) {
  OneThread device(1, {});
  const auto begin = [&] { device.api().scope_begin(device.runtime(), nullptr, -1); };
  const pto_status status = device.run([&] {
    for (int depth = 0; depth < 3; ++depth) begin();
    pto_tensor_data outer = unplaced(1024), inner = unplaced(1024);
    Submission(device).tensor(PTO_TAG_OUTPUT, outer).submit();
    begin();
    Submission(device).tensor(PTO_TAG_OUTPUT, inner).submit();
    device.api().scope_end(device.runtime());
    CHECK(Submission(device).tensor(PTO_TAG_INPUT, outer).submit() >= 0);
    CHECK_EQUAL(Submission(device).tensor(PTO_TAG_INPUT, inner).submit(), -1);
  });
  CHECK_EQUAL(status, PTO_ERROR_USAGE);
}

TEST(an_address_inside_a_heap_finds_its_owner) {
  OneThread device(1, {});
  pto_tensor_data buffers[3] = {unplaced(1024), unplaced(3000), unplaced(1024)};
  device.run([&] {
    for (pto_tensor_data& buffer : buffers) {
      Submission(device).tensor(PTO_TAG_OUTPUT, buffer).submit();
      Submission(device).submit();
    }
    pto_tensor_data inside = bytes_at(buffers[1].buffer.addr + 2000, 100);
    CHECK(Submission(device).tensor(PTO_TAG_INPUT, inside).submit() >= 0);
  });
  CHECK(device.edges() == (Edges{{id(2), id(6)}}));
}

// Invariant: A submit is published at the latest when a call waits, a scope ends, or the
// orchestration returns.
TEST(explicit_dependencies_add_to_the_found_ones) {
  OneThread device(1, {});
  pto_tensor_data tensor = bytes_at(kBase, 64);
  device.run([&] {
    const int64_t a = Submission(device).submit();
    const int64_t b = Submission(device).tensor(PTO_TAG_OUTPUT, tensor).submit();
    const int64_t c = Submission(device).tensor(PTO_TAG_INPUT, tensor).submit();
    CHECK_EQUAL(device.api().add_edge(device.runtime(), a, c), PTO_OK);
    CHECK_EQUAL(device.api().add_edge(device.runtime(), a, c), PTO_OK);
    CHECK_EQUAL(device.api().add_edge(device.runtime(), b, c), PTO_OK);
  });
  CHECK(device.edges() == (Edges{{id(0), id(2)}, {id(1), id(2)}}));
}

TEST(a_dependency_added_too_late_is_refused) {
  OneThread device(1, {});
  const pto_status status = device.run([&] {
    const int64_t a = Submission(device).submit();
    const int64_t b = Submission(device).submit();
    Submission(device).submit();
    CHECK_EQUAL(device.api().add_edge(device.runtime(), a, b), PTO_ERROR_USAGE);
  });
  CHECK_EQUAL(status, PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "submitted last");
  CHECK_EQUAL(device.run([&] {
    const int64_t a = Submission(device).submit();
    device.api().add_edge(device.runtime(), a, a);
  }),
              PTO_ERROR_USAGE);
  CHECK_EQUAL(device.run([&] {
    const int64_t a = Submission(device).submit();
    device.api().add_edge(device.runtime(), a + 400, a);
  }),
              PTO_ERROR_USAGE);
}

// Invariant: A kernel reads its own copy of each `TensorData` in the payload. The runtime does not
// write that copy after the submit.
TEST(a_payload_carries_copies_and_scalars_in_the_order_of_parameters) {
  OneThread device(1, {});
  pto_tensor_data first = bytes_at(kBase, 4096, 10, 20);
  pto_tensor_data second = unplaced(512);
  first.version = 5;
  int calls = 0;
  device.kernel = [&](const pto_payload& payload) {
    ++calls;
    const uint64_t* args = pto_payload_args(const_cast<pto_payload*>(&payload));
    CHECK_EQUAL(payload.num_args, 4u);
    CHECK_EQUAL(payload.func_id, 0);
    CHECK_EQUAL(payload.cookie, 99u);
    CHECK_EQUAL(args[0], 3u);
    const auto& a = *reinterpret_cast<const pto_tensor_data*>(args[1]);
    const auto& b = *reinterpret_cast<const pto_tensor_data*>(args[3]);
    CHECK_EQUAL(args[2], 4u);
    CHECK_EQUAL(a.buffer.addr, kBase);
    CHECK_EQUAL(a.start_offset, 10u);
    CHECK_EQUAL(a.version, 5);
    CHECK_EQUAL(b.buffer.addr, second.buffer.addr);
    CHECK_EQUAL(b.buffer.size, 512u);
  };
  device.run([&] {
    Submission submission(device);
    submission.task().cookie = 99;
    submission.scalar(3).tensor(PTO_TAG_INPUT, first).scalar(4).tensor(PTO_TAG_OUTPUT, second);
    submission.submit();
    first = {};  // allowed: the submit has copied the tensor
  });
  CHECK_EQUAL(calls, 1);
}

TEST(thirty_two_tensors_and_thirty_two_scalars_fit) {
  OneThread device(1, {});
  std::vector<pto_tensor_data> tensors;
  for (uint64_t slice = 0; slice < 32; ++slice) {
    tensors.push_back(bytes_at(kBase, 4096, slice * 10, 10));
  }
  uint32_t args = 0;
  device.kernel = [&](const pto_payload& payload) { args = payload.num_args; };
  const pto_status status = device.run([&] {
    Submission submission(device);
    for (pto_tensor_data& tensor : tensors) submission.tensor(PTO_TAG_INOUT, tensor);
    for (uint64_t scalar = 0; scalar < 32; ++scalar) submission.scalar(scalar);
    submission.submit();
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(args, 64u);
}

TEST(blocks_are_tasks_that_differ_in_their_block_id) {
  OneThread device(2, {});
  pto_tensor_data tensor = unplaced(64);
  std::set<uint64_t> seen;
  std::set<uint64_t> tasks;
  device.kernel = [&](const pto_payload& payload) {
    const uint64_t* args = pto_payload_args(const_cast<pto_payload*>(&payload));
    if (payload.num_args != 3) return;
    CHECK_EQUAL(args[1], 5u);
    seen.insert(args[2]);
    tasks.insert(payload.task);
  };
  device.run([&] {
    const int64_t before = Submission(device).submit();
    const int64_t head = Submission(device).tensor(PTO_TAG_OUTPUT, tensor).blocks(5).submit();
    device.api().add_edge(device.runtime(), before, head);
    const int64_t after = Submission(device).tensor(PTO_TAG_INPUT, tensor).submit();
    CHECK_EQUAL(head, before + 4);
    CHECK_EQUAL(after, head + 20);
  });
  CHECK(seen == (std::set<uint64_t>{0, 1, 2, 3, 4}));
  CHECK_EQUAL(tasks.size(), 5u);
  CHECK(device.edges() == (Edges{{id(0), id(1)}, {id(1), id(6)}}));
}

TEST(blocks_recycle_a_small_window) {
  OneThread device(2, {{"task_window", "8"}, {"heap", "1024"}});
  int calls = 0;
  device.kernel = [&](const pto_payload&) { ++calls; };
  const pto_status status = device.run([&] {
    for (int round = 0; round < 1000; ++round) {
      device.api().scope_begin(device.runtime(), nullptr, -1);
      pto_tensor_data tensor = unplaced(64);
      CHECK(Submission(device).tensor(PTO_TAG_OUTPUT, tensor).blocks(5).submit() >= 0);
      Submission(device).tensor(PTO_TAG_INPUT, tensor).submit();
      device.api().scope_end(device.runtime());
    }
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(calls, 6000);
}

TEST(keys_order_tasks_and_have_no_memory) {
  OneThread device(1, {});
  pto_tensor_data key = unplaced(0);
  pto_tensor_data pipe = unplaced(64);
  pipe.is_pipe = 1;
  device.run([&] {
    for (pto_tensor_data* tensor : {&key, &pipe}) {
      Submission(device).tensor(PTO_TAG_OUTPUT, *tensor).submit();
      Submission(device).tensor(PTO_TAG_INPUT, *tensor).submit();
    }
  });
  CHECK(device.edges() == (Edges{{id(0), id(1)}, {id(2), id(3)}}));
  CHECK(key.buffer.addr != 0 && key.buffer.addr != pipe.buffer.addr);
  CHECK_EQUAL(device.statistic("ring0_heap_bytes_peak"), 0u);
}

TEST(clusters_are_waited_for_and_come_back) {
  OneThread device(2, {});
  const auto allocate = [&] { return device.api().allocate_cluster(device.runtime(), kFile, 7); };
  const pto_status status = device.run([&] {
    for (int round = 0; round < 50; ++round) {
      device.api().scope_begin(device.runtime(), nullptr, -1);
      const int32_t first = allocate();
      const int32_t second = allocate();
      CHECK(first >= 0 && second >= 0 && first != second);
      Submission(device).on(&first).submit();
      Submission(device).on(&second).submit();
      if (round % 2 == 0) CHECK_EQUAL(device.api().free_cluster(device.runtime(), first), PTO_OK);
      device.api().scope_end(device.runtime());
    }
  });
  CHECK_EQUAL(status, PTO_OK);
  CHECK_EQUAL(device.statistic("clusters_peak"), 2u);
  CHECK_EQUAL(device.statistic("clusters_allocated"), 100u);
  CHECK(device.statistic("blocked_on_clusters") > 0);
}

// Invariant: Memory use does not grow with the length of a graph, only with its live tasks.
TEST(a_graph_far_longer_than_the_rings_runs_in_constant_memory) {
  OneThread device(1, {{"task_window", "16"}, {"dep_pool", "16"}, {"tensor_map_pool", "16"}});
  const auto run = [&](int tasks) {
    const pto_status status = device.run([&] {
      for (int task = 0; task < tasks; ++task) {
        if (task % 8 == 0) device.api().scope_begin(device.runtime(), nullptr, -1);
        pto_tensor_data tensor = bytes_at(kBase, 4096, 512 * (task % 3), 512);
        CHECK(Submission(device).tensor(PTO_TAG_INOUT, tensor).submit() >= 0);
        if (task % 8 == 7) device.api().scope_end(device.runtime());
      }
    });
    CHECK_EQUAL(status, PTO_OK);
    return device.statistic("reserved_bytes");
  };
  const uint64_t bytes = run(160);
  CHECK_EQUAL(run(16000), bytes);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
