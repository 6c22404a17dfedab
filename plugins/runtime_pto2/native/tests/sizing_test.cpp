// The smallest sizes, computed from invented needs and histories, without a runtime or device.
#include "planner.hpp"

#include <cstdlib>
#include <random>
#include <vector>

#include "check.hpp"
#include "history_fixture.hpp"

namespace {

using namespace pto::ring_buffer;

constexpr uint64_t kKiB = 1024;

Sizes sizes_of(uint64_t window, uint64_t heap) {
  Sizes sizes;
  sizes.blocks = 24;
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    sizes.options.task_window[ring] = window;
    sizes.options.heap[ring] = heap;
  }
  return sizes;
}

bool is_short(const Plan& plan, Resource resource, uint32_t ring) {
  return plan.is_short[static_cast<uint32_t>(resource)][ring];
}

TEST(nothing_is_short_of_an_idle_run) {
  HistoryFixture history;
  const Plan plan = smallest_sizes(sizes_of(4, 1024), Needs{}, history);
  for (uint32_t resource = 0; resource < kResources; ++resource) {
    CHECK(!plan.is_any_short(static_cast<Resource>(resource)));
  }
  CHECK(!plan.is_lower_bound);
}

TEST(an_output_that_no_event_can_tell_makes_the_answer_a_lower_bound) {
  constexpr uint64_t kTooLarge = uint64_t{1} << 42;
  HistoryFixture history;
  history.reserve(0, kTooLarge - kKiB);
  history.release(0);
  CHECK(history.get().is_complete(0));
  history.reserve(0, kTooLarge);
  CHECK(!history.get().is_complete(0));
  CHECK(history.get().events(0)[2] != History::kReleased);
  CHECK_EQUAL(history.get().most_bytes(0), kTooLarge);
}

TEST(eight_tasks_in_one_scope_need_a_window_of_sixteen) {
  HistoryFixture history;
  Needs needs{};
  needs.tasks[0] = 8;
  const Plan plan = smallest_sizes(sizes_of(4, 1024), needs, history);
  CHECK_EQUAL(plan.sizes.options.task_window[0], 16u);
  CHECK_EQUAL(plan.sizes.options.task_window[3], 16u);
  CHECK(is_short(plan, Resource::kWindow, 0));
  CHECK(!is_short(plan, Resource::kWindow, 1));
}

TEST(a_window_holds_one_task_less_than_it_has_slots) {
  HistoryFixture history;
  Needs needs{};
  needs.tasks[2] = 7;
  CHECK(!smallest_sizes(sizes_of(8, 1024), needs, history).is_any_short(Resource::kWindow));
  needs.tasks[2] = 8;
  CHECK(is_short(smallest_sizes(sizes_of(8, 1024), needs, history), Resource::kWindow, 2));
}

TEST(sizes_that_differ_are_raised_ring_by_ring) {
  HistoryFixture history;
  Sizes sizes = sizes_of(4, 1024);
  sizes.options.task_window[1] = 64;
  Needs needs{};
  needs.tasks[3] = 18;
  const Plan plan = smallest_sizes(sizes, needs, history);
  CHECK_EQUAL(plan.sizes.options.task_window[0], 4u);
  CHECK_EQUAL(plan.sizes.options.task_window[1], 64u);
  CHECK_EQUAL(plan.sizes.options.task_window[3], 32u);
}

TEST(three_outputs_of_sixteen_kib_need_forty_eight) {
  HistoryFixture history;
  for (int output = 0; output < 3; ++output) history.reserve(0, 16 * kKiB);
  history.release(0);
  const Plan plan = smallest_sizes(sizes_of(4, 32 * kKiB), Needs{}, history);
  CHECK_EQUAL(plan.sizes.options.heap[0], 48 * kKiB);
  CHECK(is_short(plan, Resource::kHeap, 0));
  CHECK(!is_short(plan, Resource::kHeap, 1));
}

TEST(a_reservation_that_does_not_reach_the_end_leaves_a_gap) {
  HistoryFixture history;
  history.reserve(0, 3 * kKiB);
  history.release(0);
  history.reserve(0, 2 * kKiB);
  history.reserve(0, 4 * kKiB);
  history.release(0);
  // The second scope begins at 3 KiB. In a heap of up to 8 KiB, its second output fits neither
  // behind its first output nor at the start of the ring, so a gap stays at the end.
  CHECK(!is_heap_enough(history, 0, 6 * kKiB));
  const Plan plan = smallest_sizes(sizes_of(4, 6 * kKiB), Needs{}, history);
  CHECK(!is_heap_enough(history, 0, 8 * kKiB));
  CHECK_EQUAL(plan.sizes.options.heap[0], 9 * kKiB);
}

TEST(an_empty_ring_fits_its_whole_size_at_any_position) {
  HistoryFixture history;
  history.reserve(0, 1 * kKiB);
  history.release(0);
  history.reserve(0, 4 * kKiB);
  history.release(0);
  CHECK(is_heap_enough(history, 0, 4 * kKiB));
}

TEST(what_four_rings_share_suffices_for_each_of_them) {
  HistoryFixture history;
  history.reserve(0, 8 * kKiB);
  history.release(0);
  history.reserve(1, 3 * kKiB);
  history.release(1);
  history.reserve(1, 2 * kKiB);
  history.reserve(1, 5 * kKiB);
  history.release(1);
  const Plan plan = smallest_sizes(sizes_of(4, 7 * kKiB), Needs{}, history);
  const uint64_t heap = plan.sizes.options.heap[0];
  CHECK_EQUAL(plan.sizes.options.heap[1], heap);
  CHECK(is_heap_enough(history, 0, heap) && is_heap_enough(history, 1, heap));
}

TEST(a_pool_has_an_entry_that_is_never_used) {
  HistoryFixture history;
  Needs needs{};
  needs.edges[0] = 128;
  Sizes sizes = sizes_of(256, 1024);
  for (uint64_t& pool : sizes.options.dep_pool) pool = 16;
  const Plan plan = smallest_sizes(sizes, needs, history);
  CHECK_EQUAL(plan.sizes.options.dep_pool[0], 129u);
  CHECK(is_short(plan, Resource::kEdges, 0));
}

TEST(clusters_and_the_tensor_map_need_what_was_alive_at_once) {
  HistoryFixture history;
  Needs needs{};
  needs.clusters = 25;
  needs.tensor_map = 100;
  Sizes sizes = sizes_of(256, 1024);
  sizes.options.tensor_map_pool = 99;
  const Plan plan = smallest_sizes(sizes, needs, history);
  CHECK_EQUAL(plan.sizes.blocks, 25u);
  CHECK_EQUAL(plan.sizes.options.tensor_map_pool, 100u);
  CHECK(is_short(plan, Resource::kCluster, 0));
  CHECK(is_short(plan, Resource::kTensorMap, 0));
}

TEST(a_history_that_was_cut_gives_a_lower_bound) {
  HistoryFixture history;
  for (uint32_t event = 0; event <= History::kMaxEvents; ++event) {
    history.reserve(0, 1 * kKiB);
    if (event % 2 == 1) history.release(0);
  }
  CHECK(!history.get().is_complete(0));
  history.release(0);
  history.reserve(0, 9 * kKiB);
  const Plan plan = smallest_sizes(sizes_of(4, 4 * kKiB), Needs{}, history);
  CHECK(plan.is_lower_bound);
  CHECK_EQUAL(plan.sizes.options.heap[0], 9 * kKiB);
}

// For random histories, the reported size suffices, and no smaller size does.
TEST(the_computed_heap_size_is_the_smallest) {
  const char* given = std::getenv("PTO_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::atoi(given)) : 1;
  std::printf("  seed %u\n", seed);
  for (uint32_t round = 0; round < 400; ++round) {
    std::mt19937 random(seed * 10007 + round);
    HistoryFixture history;
    const uint32_t scopes = 1 + random() % 12;
    for (uint32_t scope = 0; scope < scopes; ++scope) {
      const uint32_t outputs = 1 + random() % 6;
      for (uint32_t output = 0; output < outputs; ++output) {
        history.reserve(0, (1 + random() % 9) * kKiB);
      }
      history.release(0);
    }
    uint64_t smallest = kKiB;
    while (!is_heap_enough(history, 0, smallest)) smallest += kKiB;
    Sizes sizes = sizes_of(4, kKiB);
    const Plan plan = smallest_sizes(sizes, Needs{}, history);
    CHECK_EQUAL(plan.sizes.options.heap[0], smallest);
  }
}

TEST(with_a_long_history_the_next_smaller_size_still_fails) {
  HistoryFixture history;
  // The gaps of these scopes grow with the size, so that many sizes fail before one suffices.
  for (uint32_t scope = 0; scope < 100000; ++scope) {
    history.reserve(0, (1 + scope % 4099) * kKiB);
    history.reserve(0, (4099 - scope % 4099) * kKiB);
    history.reserve(0, 3001 * kKiB);
    history.release(0);
  }
  Sizes sizes = sizes_of(4, kKiB);
  const Plan plan = smallest_sizes(sizes, Needs{}, history);
  const uint64_t heap = plan.sizes.options.heap[0];
  CHECK(is_heap_enough(history, 0, heap));
  CHECK(!is_heap_enough(history, 0, heap - kKiB));
}

}  // namespace
