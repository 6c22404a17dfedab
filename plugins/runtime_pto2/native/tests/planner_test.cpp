// Tests of the planner without a run: rings that grow and are restored, addresses, clusters,
// limits.
#include "planner.hpp"

#include <memory>

#include "check.hpp"
#include "history_fixture.hpp"

namespace {

using namespace pto::ring_buffer;

// Empty rings with a window of four, and a planner on a platform that only provides memory.
struct Fixture {
  explicit Fixture(size_t memory_limit = SIZE_MAX) : left(memory_limit) {
    platform.self = this;
    platform.reserve = [](void* raw, size_t bytes) -> void* {
      Fixture& fixture = *static_cast<Fixture*>(raw);
      if (bytes > fixture.left) return nullptr;
      fixture.left -= bytes;
      ++fixture.held;
      return std::calloc(1, bytes);
    };
    platform.release = [](void* raw, void* memory, size_t bytes) {
      Fixture& fixture = *static_cast<Fixture*>(raw);
      fixture.left += bytes;
      --fixture.held;
      std::free(memory);
    };
    platform.touched = [](void* raw, const void*, size_t) {
      return static_cast<Fixture*>(raw)->touched;
    };
    for (uint32_t index = 0; index < kRings; ++index) {
      rings.ring[index].window = 4;
      rings.ring[index].records = records[index];
      sizes.options.task_window[index] = 4;
    }
    sizes.blocks = 24;
  }

  // Make the changes that a submit makes during planning.
  bool submit(uint32_t index, uint32_t count = 1) {
    if (!planner->reserve_slots(index, count)) return false;
    TaskRing& ring = rings.ring[index];
    for (uint32_t block = 0; block < count; ++block) {
      ring.record(ring.next).line = static_cast<int32_t>(ring.next);
      ++ring.next;
    }
    return true;
  }

  void end_scope(uint32_t index) {
    rings.ring[index].scope_released.store(rings.ring[index].next);
    planner->released(index);
  }

  size_t left;
  size_t touched = 0;
  int held = 0;
  pto_platform platform{};
  Context context{&platform};
  std::unique_ptr<Planner> planner = std::make_unique<Planner>(context);
  Rings rings;
  Sizes sizes;
  RingTask records[kRings][4] = {};
  HistoryFixture history;
};

TEST(rings_grow_keep_live_tasks_and_are_restored) {
  Fixture fixture;
  TaskRing& ring = fixture.rings.ring[1];
  // Submit two tasks before the proof.
  for (; ring.next < 2; ++ring.next) ring.record(ring.next).line = static_cast<int32_t>(ring.next);
  fixture.planner->enter(fixture.rings, fixture.sizes);
  CHECK(fixture.planner->is_planning());
  for (int task = 0; task < 98; ++task) CHECK(fixture.submit(1));
  CHECK_EQUAL(ring.window, 128u);
  for (int64_t task = 0; task < 100; ++task) CHECK_EQUAL(ring.record(task).line, task);
  const Plan plan = fixture.planner->finish(fixture.history);
  CHECK(!fixture.planner->is_planning());
  CHECK_EQUAL(plan.sizes.options.task_window[1], 128u);
  CHECK(!plan.is_lower_bound);
  CHECK_EQUAL(ring.window, 4u);
  CHECK(ring.records == fixture.records[1]);
  fixture.planner->end();
  CHECK_EQUAL(fixture.held, 0);
}

TEST(scopes_that_end_free_space) {
  Fixture fixture;
  fixture.planner->enter(fixture.rings, fixture.sizes);
  for (int scope = 0; scope < 1000; ++scope) {
    for (int task = 0; task < 7; ++task) CHECK(fixture.submit(2));
    fixture.end_scope(2);
  }
  CHECK_EQUAL(fixture.rings.ring[2].window, 8u);
  CHECK_EQUAL(fixture.planner->finish(fixture.history).sizes.options.task_window[2], 8u);
}

TEST(blocks_of_one_task_count_each) {
  Fixture fixture;
  fixture.planner->enter(fixture.rings, fixture.sizes);
  CHECK(fixture.submit(0, 24));
  CHECK_EQUAL(fixture.planner->finish(fixture.history).sizes.options.task_window[0], 32u);
}

TEST(outputs_never_overlap_and_looking_at_them_is_noticed) {
  Fixture fixture;
  fixture.planner->enter(fixture.rings, fixture.sizes);
  const uint64_t first = fixture.planner->reserve_outputs(4096);
  const uint64_t second = fixture.planner->reserve_outputs(1024);
  CHECK(first != 0 && second == first + 4096);
  fixture.touched = 4096;
  CHECK(fixture.planner->finish(fixture.history).is_lower_bound);
  fixture.planner->end();
  CHECK_EQUAL(fixture.held, 0);
}

TEST(a_limit_gives_a_lower_bound) {
  Fixture fixture(4096);
  fixture.planner->enter(fixture.rings, fixture.sizes);
  CHECK_EQUAL(fixture.planner->reserve_outputs(1024), 0u);
  while (fixture.submit(0)) {
  }
  const Plan plan = fixture.planner->finish(fixture.history);
  CHECK(plan.is_lower_bound);
  CHECK(plan.sizes.options.task_window[0] > 4);
  fixture.planner->end();
  CHECK_EQUAL(fixture.held, 0);
}

TEST(planned_clusters_are_counted_with_the_real_ones) {
  constexpr uint32_t kAll = (uint32_t{1} << PTO_MAX_BLOCKS) - 1;
  constexpr uint32_t kAllButThree = kAll & ~(uint32_t{1} << 3);
  Fixture fixture;
  Planner& planner = *fixture.planner;
  planner.enter(fixture.rings, fixture.sizes);
  const int32_t outer = planner.allocate_cluster(0, kAll);
  const int32_t inner = planner.allocate_cluster(2, kAll);
  CHECK_EQUAL(outer, static_cast<int32_t>(PTO_MAX_BLOCKS));
  CHECK_EQUAL(inner, static_cast<int32_t>(PTO_MAX_BLOCKS) + 1);
  CHECK(planner.is_allocated(outer) && planner.is_allocated(inner));
  CHECK(!planner.is_allocated(3) && !planner.is_allocated(-1));
  planner.end_scope(1);
  CHECK(planner.is_allocated(outer) && !planner.is_allocated(inner));
  planner.free_cluster(outer);
  CHECK(!planner.is_allocated(outer));
  CHECK_EQUAL(planner.allocate_cluster(0, kAllButThree), 3);
  CHECK_EQUAL(planner.allocate_cluster(0, kAllButThree), static_cast<int32_t>(PTO_MAX_BLOCKS));
  const Plan plan = planner.finish(fixture.history);
  CHECK_EQUAL(plan.sizes.blocks, 26u);
}

TEST(a_planner_plans_again_in_the_next_run) {
  Fixture fixture;
  for (int run = 0; run < 3; ++run) {
    fixture.planner->enter(fixture.rings, fixture.sizes);
    for (int task = 0; task < 10; ++task) CHECK(fixture.submit(0));
    CHECK_EQUAL(fixture.planner->finish(fixture.history).sizes.options.task_window[0], 16u);
    fixture.planner->end();
    CHECK_EQUAL(fixture.held, 0);
    fixture.rings.ring[0].next = 0;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
