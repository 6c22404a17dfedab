// Tests of the drive loop with a small machine and a variant that follows a script.
#include "pto/engine/drive.hpp"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "check.hpp"

namespace {

using pto::engine::Drive;
using pto::engine::DriveShape;
using pto::engine::OrchestratorState;

constexpr DriveShape kShape{2, false, true, true};

// A machine whose variant is a script: what each step and stalled() return.
class Machine : public Drive<Machine> {
 public:
  struct Pause {
    void operator()() const { std::this_thread::yield(); }
  };

  explicit Machine(const DriveShape& shape = kShape) { prepare_drive(shape); }

  bool running() const { return running_.load(); }
  void end_run(bool is_success) {
    if (running_.exchange(false)) is_success_ = is_success;
  }
  int32_t call_step(uint32_t thread) {
    inside_.fetch_add(1);
    const int32_t result = on_step(thread);
    inside_.fetch_sub(1);
    return result;
  }
  int32_t call_stalled() {
    CHECK_EQUAL(inside_.load(), 0);
    CHECK(orchestrator().state() != OrchestratorState::running);
    ++stalls;
    return on_stalled();
  }

  // Takes one step, as a thread of the machine does. Returns PTO_STEP_IDLE if none is permitted.
  int32_t turn(uint32_t thread) {
    if (!may_step() || !scheduler(thread).try_lock()) return PTO_STEP_IDLE;
    scheduler(thread).take_wake();
    const int32_t result = steppable(thread) ? step(thread) : int32_t{PTO_STEP_IDLE};
    scheduler(thread).unlock();
    return result;
  }

  bool is_success() const { return is_success_.load(); }

  std::function<int32_t(uint32_t)> on_step = [](uint32_t) { return PTO_STEP_IDLE; };
  std::function<int32_t()> on_stalled = [] { return PTO_STEP_ERROR; };
  int stalls = 0;

 private:
  std::atomic<bool> running_{true};
  std::atomic<bool> is_success_{false};
  std::atomic<int> inside_{0};
};

}  // namespace

TEST(a_wait_is_examined_only_if_it_has_not_changed) {
  const auto forbidden = [] { CHECK(false); };
  OrchestratorState orchestrator;
  orchestrator.reset();
  const uint32_t word = 0;
  orchestrator.begin_wait(&word, 0);
  const uint64_t seen = orchestrator.snapshot();
  orchestrator.end_wait(forbidden);
  CHECK(!orchestrator.enter_wait(seen));
  orchestrator.begin_wait(&word, 0);
  CHECK(!orchestrator.enter_wait(seen));
  CHECK(orchestrator.enter_wait(orchestrator.snapshot()));
  CHECK(!orchestrator.satisfied());
  bool has_paused = false;
  orchestrator.end_wait([&] {
    has_paused = true;
    orchestrator.leave_wait();
  });
  CHECK(has_paused);
  CHECK(orchestrator.state() == OrchestratorState::running);
}

TEST(a_run_ends_when_all_schedulers_are_done) {
  Machine machine;
  machine.end_build();
  machine.on_step = [](uint32_t) { return PTO_STEP_DONE; };
  CHECK_EQUAL(machine.turn(0), PTO_STEP_DONE);
  CHECK(machine.running());
  CHECK_EQUAL(machine.turn(0), PTO_STEP_IDLE);
  CHECK_EQUAL(machine.turn(1), PTO_STEP_DONE);
  CHECK(!machine.running() && machine.is_success());
}

TEST(a_failed_step_ends_the_run) {
  Machine machine;
  machine.on_step = [](uint32_t) { return PTO_STEP_ERROR; };
  CHECK_EQUAL(machine.turn(1), PTO_STEP_ERROR);
  CHECK(!machine.running() && !machine.is_success());
}

TEST(a_running_orchestrator_prevents_the_proof) {
  Machine machine;
  CHECK(!machine.check_stall());
  machine.end_build();
  CHECK(machine.check_stall());
  CHECK_EQUAL(machine.stalls, 1);
  CHECK(!machine.running() && !machine.is_success());
}

TEST(a_changed_word_prevents_the_proof) {
  Machine machine;
  uint32_t word = 0;
  machine.begin_wait(&word, 0);
  word = 1;
  CHECK(!machine.check_stall());
  word = 0;
  // the word changes while the schedulers are examined
  machine.on_step = [&](uint32_t) { return word = 1, PTO_STEP_IDLE; };
  CHECK(!machine.check_stall());
  CHECK_EQUAL(machine.stalls, 0);
}

TEST(a_wait_that_ended_during_the_proof_prevents_it) {
  Machine machine;
  uint32_t word = 0;
  machine.begin_wait(&word, 0);
  machine.on_step = [&](uint32_t) {
    machine.end_wait();
    machine.begin_wait(&word, 0);
    return PTO_STEP_IDLE;
  };
  CHECK(!machine.check_stall());
  CHECK_EQUAL(machine.stalls, 0);
}

TEST(a_busy_core_prevents_the_proof) {
  Machine machine;
  machine.end_build();
  pto::engine::insert(machine.scheduler(1).in_flight, 70);
  CHECK(!machine.check_stall());
  pto::engine::remove(machine.scheduler(1).in_flight, 70);
  // a step dispatches to a core and reports idle
  machine.on_step = [&](uint32_t thread) {
    if (thread == 0) pto::engine::insert(machine.scheduler(0).in_flight, 3);
    return PTO_STEP_IDLE;
  };
  CHECK(machine.check_stall());
  CHECK(machine.wake_pending());
  CHECK_EQUAL(machine.stalls, 0);
}

TEST(a_wake_during_the_proof_prevents_it) {
  Machine machine;
  machine.end_build();
  machine.on_step = [&](uint32_t thread) {
    if (thread == 1) machine.wake(0);
    return PTO_STEP_IDLE;
  };
  CHECK(machine.check_stall());
  CHECK_EQUAL(machine.stalls, 0);
  CHECK(machine.running());
}

TEST(a_variant_that_finds_work_continues) {
  Machine machine;
  machine.end_build();
  machine.on_stalled = [] { return PTO_STEP_PROGRESS; };
  CHECK(machine.check_stall());
  CHECK_EQUAL(machine.stalls, 1);
  CHECK(machine.running() && machine.wake_pending());
}

TEST(no_scheduler_is_stepped_before_the_graph_is_complete) {
  Machine machine({2, false, false, true});
  machine.on_step = [](uint32_t) { return CHECK(false), PTO_STEP_IDLE; };
  CHECK(!machine.may_step());
  uint32_t word = 0;
  machine.begin_wait(&word, 0);
  CHECK(machine.check_stall());  // proven without a step
  CHECK_EQUAL(machine.stalls, 1);
}

TEST(a_shared_thread_schedules_only_while_the_orchestrator_waits) {
  for (const bool has_library : {false, true}) {
    Machine machine({1, true, true, has_library});
    if (has_library) machine.begin_build();
    CHECK(!machine.may_step());
    CHECK(!machine.scheduler(0).try_lock());
    uint32_t word = 0;
    machine.begin_wait(&word, 0);
    CHECK(machine.may_step());
    CHECK(machine.scheduler(0).try_lock());
    machine.scheduler(0).unlock();
    machine.end_wait();
    CHECK(!machine.may_step());
    machine.end_build();
    CHECK(machine.may_step());
  }
}

// One thread for each scheduler, and one for the orchestrator, as on a device. Each round the
// orchestrator waits for a word that a scheduler changes, until it waits in vain.
TEST(threads_prove_a_stall_exactly_once) {
  constexpr uint32_t kRounds = check::kIsSanitized ? 400 : 2000;
  for (uint32_t schedulers = 1; schedulers <= PTO_MAX_AICPU_THREADS; ++schedulers) {
    Machine machine({schedulers, false, true, true});
    std::atomic<uint32_t> word{0};
    std::atomic<uint32_t> wanted{0};
    machine.on_step = [&](uint32_t thread) -> int32_t {
      const uint32_t round = wanted.load();
      if (round % schedulers != thread || round == 0 || round >= kRounds) return PTO_STEP_IDLE;
      // a step that read `wanted` long ago must not set the word back
      uint32_t previous = round - 1;
      return word.compare_exchange_strong(previous, round) ? PTO_STEP_PROGRESS : PTO_STEP_IDLE;
    };
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < schedulers; ++thread) {
      threads.emplace_back([&machine, thread] {
        while (machine.running()) {
          if (machine.turn(thread) == PTO_STEP_IDLE) machine.check_stall();
        }
      });
    }
    machine.begin_build();
    for (uint32_t round = 1; round <= kRounds && machine.running(); ++round) {
      const auto* raw = reinterpret_cast<const uint32_t*>(&word);
      wanted.store(round);
      machine.wake(round % schedulers);
      machine.begin_wait(raw, round - 1);
      while (machine.running() && word.load() == round - 1) std::this_thread::yield();
      machine.end_wait();
    }
    machine.end_build();
    for (std::thread& thread : threads) thread.join();
    CHECK_EQUAL(machine.stalls, 1);
    CHECK_EQUAL(word.load(), kRounds - 1);
    CHECK(!machine.is_success());
  }
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
