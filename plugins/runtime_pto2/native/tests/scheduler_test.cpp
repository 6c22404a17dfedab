// Tests of the schedulers, step by step. A scripted platform determines when a core finishes, and
// records wake-ups.
#include <sys/mman.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "feeder.hpp"

namespace {

// The scripted platform: `threads` schedulers with `blocks` clusters. Cluster i belongs to
// scheduler i mod threads.
class Script {
 public:
  explicit Script(uint32_t threads, uint32_t blocks = 2, Feeder::Shape shape = {})
      : threads_(threads) {
    topology_.blocks = blocks;
    topology_.cores = 3 * blocks;
    topology_.schedulers = threads;
    for (uint32_t core = 0; core < topology_.cores; ++core) {
      const uint32_t cluster = core < blocks ? core : (core - blocks) / 2;
      topology_.core_type[core] = core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
      topology_.thread_cores[cluster % threads].words[0] |= uint64_t{1} << core;
    }
    fill_table();
    feeder_.reset(new Feeder(&table_, shape));
    feeder_->begin();
  }

  Feeder& feeder() { return *feeder_; }
  int64_t add(const Feeder::Submit& task) { return feeder_->submit(task); }
  int32_t step(uint32_t thread) { return feeder_->scheduler().step(thread); }

  // Steps all schedulers until all are idle, without finishing a kernel.
  void settle() {
    for (uint32_t idle = 0; idle < threads_;) {
      idle = 0;
      for (uint32_t thread = 0; thread < threads_; ++thread) idle += step(thread) == PTO_STEP_IDLE;
    }
  }

  void finish(uint64_t cookie) {
    const uint32_t core = core_of(cookie);
    running_[core] = kNothing;
    finished_ |= uint64_t{1} << core;
  }
  void fault(uint64_t cookie) {
    faulted_ |= uint64_t{1} << core_of(cookie);
    finish(cookie);
  }
  bool runs(uint64_t cookie) const {
    for (const uint64_t running : running_) {
      if (running == cookie) return true;
    }
    return false;
  }
  uint32_t core_of(uint64_t cookie) const {
    for (uint32_t core = 0; core < topology_.cores; ++core) {
      if (running_[core] == cookie) return core;
    }
    check::fail(__FILE__, __LINE__, "task " + std::to_string(cookie) + " is on no core");
  }

  // Runs the submitted tasks to their end. Returns the cookies in the order in which the tasks
  // started.
  std::vector<uint64_t> run_out() {
    feeder_->done();
    std::set<uint32_t> done;
    while (done.size() < threads_) {
      for (uint32_t thread = 0; thread < threads_; ++thread) {
        if (done.count(thread) == 0 && step(thread) == PTO_STEP_DONE) done.insert(thread);
      }
      for (uint32_t core = 0; core < topology_.cores; ++core) {
        if (running_[core] != kNothing) finish(running_[core]);
      }
    }
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      CHECK_EQUAL(feeder_->alive(ring), feeder_->rings().ring[ring].next);
    }
    return started;
  }

  std::set<uint32_t> woken;
  std::vector<uint64_t> started;
  std::vector<std::string> events;
  std::vector<uint64_t> payload_tasks;
  std::vector<uint64_t> block_ids;
  std::function<void(uint32_t)> at_yield = [](uint32_t) {};
  std::function<void(uint32_t)> at_wake = [](uint32_t) {};  // called when a scheduler is woken
  uint32_t notified = 0;
  uint64_t wired_when_notified = 0;
  void make_deterministic() { table_.deterministic = 1; }
  void trace() { table_.tracing = PTO_TRACE_ORDER; }

 private:
  static constexpr uint64_t kNothing = ~uint64_t{0};

  static Script& self(void* raw) { return *static_cast<Script*>(raw); }

  void fill_table() {
    table_.self = this;
    table_.topology = &topology_;
    table_.reserve = [](void*, size_t bytes) {
      return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    };
    table_.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
    table_.dispatch = [](void* raw, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) self(raw).start(thread, batch[i]);
    };
    table_.poll = [](void* raw, uint32_t thread, pto_poll_result* result) {
      *result = {};
      const uint64_t mine = self(raw).topology_.thread_cores[thread].words[0];
      result->done.words[0] = self(raw).finished_ & mine;
      result->faulted.words[0] = self(raw).faulted_ & mine;
      self(raw).finished_ &= ~mine;
    };
    table_.fault = [](void*, uint32_t, pto_error* error) { error->status = PTO_ERROR_KERNEL; };
    table_.wake = [](void* raw, uint32_t thread) {
      self(raw).woken.insert(thread);
      self(raw).at_wake(thread);
    };
    table_.wait = [](void*, const uint32_t*, uint32_t) { return pto_status{PTO_ERROR_ABORTED}; };
    table_.notify = [](void* raw, const uint32_t*) {
      ++self(raw).notified;
      self(raw).wired_when_notified = self(raw).feeder_->rings().wired.load();
    };
    table_.yield = [](void* raw, uint32_t point) { self(raw).at_yield(point); };
    table_.order = [](void* raw, uint32_t event, uint64_t a, uint64_t b) {
      const char* name = event == PTO_TRACE_READY ? "ready " : "complete ";
      self(raw).events.push_back(name + std::to_string(a) + " " + std::to_string(b));
    };
    for (uint64_t& running : running_) running = kNothing;
  }

  void start(uint32_t thread, const pto_dispatch& item) {
    CHECK(topology_.thread_cores[thread].words[0] >> item.core & 1);
    CHECK_EQUAL(uint32_t{topology_.core_type[item.core]},
                static_cast<uint32_t>(item.payload->func_id));
    CHECK(running_[item.core] == kNothing);
    const auto* args = reinterpret_cast<const uint64_t*>(item.payload + 1);
    CHECK_EQUAL(args[0], 3 * item.payload->cookie);
    running_[item.core] = item.payload->cookie + args[1];
    started.push_back(item.payload->cookie + args[1]);
    payload_tasks.push_back(item.payload->task);
    block_ids.push_back(args[1]);
  }

  uint32_t threads_;
  pto_topology topology_{};
  pto_platform table_{};
  std::unique_ptr<Feeder> feeder_;
  uint64_t running_[PTO_MAX_CORES];
  uint64_t finished_ = 0;
  uint64_t faulted_ = 0;
};

using Order = std::vector<uint64_t>;

TEST(a_chain_runs_in_order_and_retires) {
  Script script(1);
  int64_t last = script.add({1});
  for (uint64_t cookie = 2; cookie <= 5; ++cookie) {
    last = script.add({cookie, PTO_CORE_AIV, {{last, kOrders | kHolds}}});
  }
  script.settle();
  CHECK(script.started == Order{1});
  CHECK(script.run_out() == (Order{1, 2, 3, 4, 5}));
  CHECK_EQUAL(script.feeder().statistics().edges, 4u);
  CHECK_EQUAL(script.feeder().statistics().early_ready, 1u);
}

TEST(consumers_start_in_the_order_of_submits) {
  Script script(1, 1, {64});
  const int64_t root = script.add({0});
  for (uint64_t cookie = 1; cookie < 20; ++cookie) script.add({cookie, 0, {{root, kOrders}}});
  Order order;
  for (uint64_t cookie = 0; cookie < 20; ++cookie) order.push_back(cookie);
  CHECK(script.run_out() == order);
}

TEST(edges_to_completed_and_retired_producers_are_satisfied) {
  Script script(1, 2, {4});
  const int64_t a = script.add({1});
  script.settle();
  script.finish(1);
  script.settle();
  CHECK_EQUAL(script.feeder().phase(a), uint32_t{kDone});
  const int64_t b = script.add({2, 0, {{a, kOrders | kHolds}}});
  script.settle();
  CHECK(script.runs(2));
  script.feeder().release(0, 1);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(0), 0);  // the consumer holds the slot of the task
  script.finish(2);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(0), 1);
  CHECK_EQUAL(script.feeder().phase(a), uint32_t{kConsumed});
  CHECK_EQUAL(script.feeder().phase(b), uint32_t{kDone});
  CHECK_EQUAL(script.feeder().statistics().edges_satisfied, 1u);
  script.run_out();
}

// Invariant: Every edge of the ring-buffer runtime is counted once: in the fan-out list of a
// producer that is not complete, or as satisfied. A task becomes ready with its last edge.
//
// Here the first edge of the task is satisfied when the task is wired; the second one is not.
TEST(an_edge_counts_once) {
  Script script(1);
  const int64_t a = script.add({1});
  script.settle();
  script.finish(1);
  script.settle();
  const int64_t b = script.add({2});
  script.add({3, PTO_CORE_AIV, {{a, kOrders}, {b, kOrders}}});
  script.settle();
  CHECK(!script.runs(3));
  CHECK(script.run_out() == (Order{1, 2, 3}));
}

TEST(a_fan_in_of_fifty_waits_for_all) {
  Script script(2, 2, {64});
  std::vector<std::pair<int64_t, uint32_t>> producers;
  for (uint64_t cookie = 0; cookie < 50; ++cookie) {
    producers.emplace_back(script.add({cookie, static_cast<uint32_t>(cookie % 2)}), kOrders);
  }
  script.add({100, 0, producers});
  script.run_out();
  CHECK_EQUAL(script.started.back(), 100u);
}

TEST(holds_keep_the_slot_until_the_last_consumer_has_completed) {
  Script script(1, 2, {8});
  const int64_t owner = script.add({1});
  // the task holds its producer but does not wait for it
  const int64_t other = script.add({2, 0, {{owner, kHolds}}});
  script.feeder().release(0, 2);
  script.settle();
  CHECK(script.runs(1) && script.runs(2));
  script.finish(1);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(0), 0);
  CHECK_EQUAL(script.feeder().state(owner).held.load(), 1u);
  CHECK_EQUAL(script.feeder().state(owner).released.load(), 0u);
  script.finish(2);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(0), 2);
  CHECK_EQUAL(script.feeder().phase(other), uint32_t{kConsumed});
}

// Invariant: Each ring retires its tasks in submit order, independent of other rings. The watermark
// never decreases, and the slots, slabs and map entries before it are free together.
TEST(rings_reclaim_independently) {
  Script script(1);
  script.add({1});
  const int64_t inner = script.add({2, PTO_CORE_AIV, {}, -1, 0, 2});
  script.settle();
  script.feeder().release(2, 1);
  script.finish(2);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(2), 1);
  CHECK_EQUAL(script.feeder().alive(0), 0);
  CHECK_EQUAL(inner, int64_t{2});
  script.run_out();
}

// Invariant: A task that names a buffer is wired before the scope of the buffer can release it.
TEST(scopes_let_go_only_of_what_the_wiring_has_seen) {
  Script script(1, 2, {8});
  script.add({1});
  script.settle();
  script.finish(1);
  script.settle();
  // The scope ends after this submit, which the schedulers have not read yet.
  CHECK(script.feeder().write({2, PTO_CORE_AIV, {{0, kHolds}}}));
  script.feeder().release(0, 1);
  script.feeder().publish();
  script.settle();
  CHECK(script.runs(2));
  CHECK_EQUAL(script.feeder().alive(0), 0);
  script.finish(2);
  script.settle();
  CHECK_EQUAL(script.feeder().alive(0), 1);
  script.run_out();
}

TEST(a_waiting_orchestrator_is_notified) {
  Script script(1);
  script.add({1});
  script.settle();
  script.feeder().rings().waiting.store(1);
  script.finish(1);
  script.settle();
  CHECK_EQUAL(script.notified, 1u);
  script.feeder().release(0, 1);
  script.settle();
  CHECK_EQUAL(script.notified, 2u);
  CHECK_EQUAL(script.feeder().rings().signal.load(), 2u);
  script.feeder().rings().waiting.store(0);
  script.run_out();
  CHECK_EQUAL(script.notified, 2u);
}

// The orchestrator can reuse the resources of a task when the task has completed and is known to be
// wired. Here, another scheduler completes the task while the batch of the task is still being
// wired, so the end of the wiring must notify the orchestrator again.
TEST(a_waiting_orchestrator_is_notified_when_tasks_are_wired) {
  Script script(2);
  script.settle();
  script.at_wake = [&](uint32_t thread) {
    if (thread != 1) return;
    script.step(1);
    script.finish(1);
    script.step(1);
    CHECK_EQUAL(script.notified, 1u);
    CHECK_EQUAL(script.wired_when_notified, 0u);
  };
  script.feeder().clusters().allocate(0);
  const int32_t cluster = script.feeder().clusters().allocate(0);
  // belongs to a cluster of scheduler 1
  CHECK(script.feeder().write({1, PTO_CORE_AIC, {}, cluster}));
  CHECK(script.feeder().write({2}));
  script.feeder().rings().waiting.store(1);
  script.feeder().publish();
  script.step(0);
  CHECK(script.runs(2));
  CHECK_EQUAL(script.notified, 2u);
  CHECK_EQUAL(script.wired_when_notified, 2u);
  script.at_wake = [](uint32_t) {};
  script.feeder().clusters().free(cluster);
  script.run_out();
}

TEST(blocks_start_together_and_complete_as_one) {
  Script script(1, 4, {8});
  const int64_t before = script.add({1});
  const int64_t head = script.add({10, PTO_CORE_AIV, {{before, kOrders}}, -1, 5});
  script.add({2, PTO_CORE_AIC, {{head, kOrders | kHolds}}});
  script.settle();
  CHECK(script.started == Order{1});
  script.finish(1);
  script.settle();
  CHECK(script.started == (Order{1, 10, 11, 12, 13, 14}));
  CHECK(script.block_ids == (Order{0, 0, 1, 2, 3, 4}));
  for (uint64_t block = 0; block < 5; ++block) {
    const auto id = static_cast<uint64_t>(TaskId{0, 1 + static_cast<int64_t>(block)}.value());
    CHECK_EQUAL(script.payload_tasks[1 + block], id);
  }
  for (const uint64_t cookie : {10, 14, 11, 13}) script.finish(cookie);
  script.settle();
  CHECK(!script.runs(2));
  CHECK_EQUAL(script.feeder().phase(head), uint32_t{kCompleted});
  script.finish(12);
  script.settle();
  CHECK(script.runs(2));
  script.run_out();
}

TEST(blocks_wrap_around_the_window) {
  Script script(1, 2, {8});
  for (uint64_t cookie = 0; cookie < 6; ++cookie) script.add({cookie});
  script.feeder().release(0, 6);
  for (uint64_t cookie = 0; cookie < 6; ++cookie) {
    script.settle();
    script.finish(cookie);
  }
  script.settle();
  script.add({10, PTO_CORE_AIV, {}, -1, 6});
  CHECK_EQUAL(script.run_out().size(), size_t{12});
}

// Invariant: Tasks of a cluster run only on its cores. A freed cluster is reused after its last
// task has completed.
TEST(tasks_of_a_cluster_run_only_there) {
  Script script(2, 4, {64});
  script.feeder().clusters().allocate(0);
  const int32_t cluster = script.feeder().clusters().allocate(0);
  CHECK_EQUAL(cluster, 1);  // the cluster belongs to scheduler 1; scheduler 0 wires its tasks
  for (uint64_t cookie = 0; cookie < 3; ++cookie) {
    script.add({cookie, PTO_CORE_AIV, {}, cluster});
    script.add({10 + cookie, PTO_CORE_AIC, {}, cluster});
  }
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK(script.started.empty());
  script.settle();
  CHECK_EQUAL(script.core_of(0), 6u);
  CHECK_EQUAL(script.core_of(1), 7u);
  CHECK_EQUAL(script.core_of(10), 1u);
  CHECK(!script.runs(2) && !script.runs(11));
  script.finish(1);
  script.finish(10);
  script.settle();
  CHECK_EQUAL(script.core_of(2), 7u);
  CHECK_EQUAL(script.core_of(11), 1u);
  script.feeder().clusters().free(cluster);
  CHECK_EQUAL(script.feeder().clusters().taken(), 2u);
  script.run_out();
  CHECK_EQUAL(script.feeder().clusters().taken(), 1u);
  CHECK_EQUAL(script.feeder().statistics().pinned, 6u);
}

TEST(a_pinned_task_wakes_its_clusters_scheduler) {
  Script script(2, 2);
  script.feeder().clusters().allocate(0);
  const int32_t cluster = script.feeder().clusters().allocate(0);
  script.settle();
  script.woken.clear();
  script.add({1, PTO_CORE_AIC, {}, cluster});
  CHECK(script.woken == std::set<uint32_t>{0});
  script.step(0);
  CHECK(script.woken == (std::set<uint32_t>{0, 1}));
  script.settle();
  CHECK(script.runs(1));
  script.run_out();
}

TEST(what_one_scheduler_cannot_run_wakes_the_hungry_one) {
  Script script(2, 2, {16});
  script.settle();
  for (uint64_t cookie = 0; cookie < 3; ++cookie) script.add({cookie});
  script.woken.clear();
  script.step(0);
  CHECK(script.started == Order{0});
  CHECK(script.woken == std::set<uint32_t>{1});
  script.settle();
  CHECK(script.started == (Order{0, 1}));
  CHECK_EQUAL(script.feeder().statistics().shared, 2u);
  CHECK_EQUAL(script.feeder().statistics().steals, 1u);
  script.run_out();
}

TEST(tasks_that_stay_shared_count_once) {
  Script script(2, 2, {16});
  script.settle();
  for (uint64_t cookie = 0; cookie < 3; ++cookie) script.add({cookie});
  script.step(0);
  CHECK_EQUAL(script.feeder().statistics().shared, 2u);
  for (uint64_t cookie = 3; cookie < 6; ++cookie) script.add({cookie});
  script.step(0);
  CHECK(script.started == Order{0});
  // not 2 + 5: the 2 tasks that were in the queue before count only once
  CHECK_EQUAL(script.feeder().statistics().shared, 5u);
  script.run_out();
}

TEST(a_submit_wakes_a_scheduler_only_if_all_are_idle) {
  Script script(2);
  script.add({1});
  CHECK(script.woken.empty());
  script.settle();
  script.add({2, PTO_CORE_AIV});
  CHECK_EQUAL(script.woken.size(), size_t{1});
  script.add({3, PTO_CORE_AIV});
  CHECK_EQUAL(script.woken.size(), size_t{1});
  script.run_out();
}

// Invariant: No ready task starves while other tasks become ready.
//
// Here scheduler 0 makes another task of its own ready whenever it completes one, while scheduler 1
// has left a task in the shared queue.
TEST(no_ready_task_waits_forever) {
  Script script(2, 2, {256});
  int64_t last = script.add({1000});
  for (uint64_t cookie = 1; cookie < 100; ++cookie) {
    last = script.add({1000 + cookie, PTO_CORE_AIC, {{last, kOrders}}});
  }
  while (script.step(0) == PTO_STEP_PROGRESS) {
  }
  for (uint64_t cookie = 0; cookie < 3; ++cookie) script.add({cookie});
  script.step(1);  // this scheduler wires the tasks, runs one of them and never completes it
  CHECK(script.runs(0));
  uint64_t running = 1000;
  for (int turn = 0; turn < 20 && !script.runs(1); ++turn) {
    script.finish(running);
    while (script.step(0) == PTO_STEP_PROGRESS) {
    }
    ++running;
  }
  CHECK(script.runs(1));
  CHECK(running < 1000 + 2 * Ready::kFairTurn);
  script.run_out();
}

TEST(a_fault_names_task_and_line) {
  Script script(1);
  const int64_t id = script.add({7});
  script.settle();
  script.fault(7);
  CHECK_EQUAL(script.step(0), PTO_STEP_ERROR);
  const pto_error& error = *script.feeder().context().latch.error();
  CHECK_EQUAL(error.status, PTO_ERROR_KERNEL);
  CHECK_EQUAL(error.task, id);
  CHECK_EQUAL(error.line, 7);
  CHECK_CONTAINS(std::string(error.file), "feeder");
  CHECK_CONTAINS(std::string(error.message), ":7: task 0 of ring 0 (function 0) failed on core 0");
  CHECK_EQUAL(script.feeder().phase(id), uint32_t{kFailed});
}

TEST(halted_schedulers_do_nothing_until_there_is_an_error) {
  Script script(1);
  script.feeder().scheduler().halt();
  script.add({1});
  CHECK_EQUAL(script.step(0), PTO_STEP_IDLE);
  CHECK(script.started.empty());
  script.feeder().context().fail({PTO_ERROR_DEADLOCK}, "stuck");
  CHECK_EQUAL(script.step(0), PTO_STEP_ERROR);
}

TEST(other_schedulers_step_while_one_completes) {
  Script script(2, 2, {16});
  script.make_deterministic();
  script.trace();
  const int64_t a = script.add({1});
  for (uint64_t cookie = 2; cookie < 6; ++cookie) {
    script.add({cookie, PTO_CORE_AIV, {{a, kOrders | kHolds}}});
  }
  script.settle();
  CHECK(script.runs(1));
  const uint32_t thread = script.core_of(1) == 0 ? 0 : 1;
  std::vector<uint32_t> points;
  script.at_yield = [&](uint32_t point) {
    if (point == PTO_YIELD_SUBMIT) return;
    points.push_back(point);
    script.step(1 - thread);
  };
  script.finish(1);
  script.step(thread);
  CHECK(points == (std::vector<uint32_t>{PTO_YIELD_COMPLETE, PTO_YIELD_RELEASE, PTO_YIELD_RELEASE,
                                         PTO_YIELD_RELEASE, PTO_YIELD_RELEASE}));
  CHECK_EQUAL(script.events.front(), "ready 0 " + std::to_string(thread));
  CHECK_EQUAL(script.events[1], "complete 0 " + std::to_string(thread));
  script.run_out();
  CHECK_EQUAL(script.events.size(), size_t{10});
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
