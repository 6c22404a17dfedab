// A second scheduler acts between any two instructions of a call that the first scheduler makes.

#include "interleaving.hpp"
#include "scheduler.hpp"

using namespace pto::ring_buffer;

namespace {

// A ring with two tasks of ended scopes. The first task is done; the second is not.
struct TwoTasks {
  TwoTasks() {
    TaskRing& ring = rings.ring[0];
    ring.window = 4;
    ring.states = states;
    ring.next = 2;
    ring.releasable.store(2);
    states[0].phase.store(kDone);
    states[1].phase.store(kCompleted);
    completion.begin(false);
  }

  // Take the steps of the scheduler that completes the second task.
  void finish_second() {
    states[1].phase.store(kDone);
    completion.retire(0);
  }

  pto_platform platform{};
  Context context{&platform};
  Rings rings;
  RingTaskState states[4] = {};
  Resting resting{context};
  Ready ready{context, rings, resting};
  Clusters clusters{context, rings};
  Completion completion{context, rings, ready, clusters};
};

TEST(a_task_that_is_done_while_another_scheduler_retires_is_retired_too) {
  uint64_t at = 1;
  for (bool has_acted = true; has_acted; ++at) {
    TwoTasks tasks;
    has_acted = interleaving::run_with(
        at, [&] { tasks.finish_second(); }, [&] { tasks.completion.retire(0); });
    if (!has_acted) tasks.finish_second();
    CHECK_EQUAL(tasks.rings.ring[0].watermark.load(), int64_t{2});
    CHECK_EQUAL(tasks.rings.ring[0].retiring.load(), 0u);
  }
  CHECK(at > 20);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
