// Submits that block: they are woken, aborted, proven to be stuck, or continue after this proof.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "graphs.hpp"

namespace {

constexpr uint32_t kWindow = 2;

// One way to run a blocking orchestration; every_way() lists all.
struct Way {
  std::string mode;
  int workers;
  bool here;  // whether the orchestration runs on the caller's thread
  int32_t threads;

  std::vector<Fixture::Option> options() const {
    std::vector<Fixture::Option> given = {{"mode", mode}};
    if (mode == "threads") given.push_back({"workers", std::to_string(workers)});
    return given;
  }
};

std::vector<Way> every_way() {
  std::vector<Way> ways;
  for (const bool here : {false, true}) {
    for (int32_t threads = 1; threads <= 4; ++threads) {
      ways.push_back({"deterministic", 1, here, threads});
      for (const int workers : {1, 2, 3}) ways.push_back({"threads", workers, here, threads});
    }
  }
  return ways;
}

struct Blocking : Fixture {
  explicit Blocking(const Way& given) : Fixture(given.options(), toy::concurrent), way(given) {
    config.aicpu_thread_num = way.threads;
    runtime->set_window(kWindow);
  }

  pto_status go(const toy::Program& program) {
    return way.here ? run_from_here(program) : run(program);
  }

  // The first task never becomes ready, and the others wait for it.
  toy::Program stuck(int32_t func_id, int64_t count) {
    return [=, this](toy::Runtime& toy_runtime) {
      toy_runtime.hold_next();
      toy_runtime.set_keeps_hold(true);
      int64_t last = -1;
      for (int64_t i = 0; i < count; ++i) {
        last = toy_runtime.submit(func_id, PTO_CORE_AIV, {},
                                  last < 0 ? std::vector<int64_t>{} : std::vector<int64_t>{last});
      }
      return 0;
    };
  }

  void works_again() {
    runtime->set_keeps_hold(false);
    runtime->set_plans(false);
    Record record(50);
    kernels.clear();
    CHECK_EQUAL(go(chain(kernel(Record::kernel, &record), 50)), PTO_OK);
    CHECK_EQUAL(record.count.load(), 50u);
  }

  const Way way;
};

// Restricts the calling thread, and threads that it starts during the lifetime of this object, to
// one processor.
class OneProcessor {
 public:
  OneProcessor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    CHECK_EQUAL(sched_setaffinity(0, sizeof one, &one), 0);
  }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;
  ~OneProcessor() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

void proofs_come_at_once(int rounds) {
  for (const Way& way : every_way()) {
    Blocking device(way);
    Record record(1);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    volatile uint64_t work = 0;
    for (int round = 0; round < rounds; ++round) {
      const toy::Program stuck = device.stuck(func_id, 5);
      const toy::Program late = [&](toy::Runtime& runtime) {
        for (int i = 0; i < round * 37 % 5000; ++i) work = work + 1;
        return stuck(runtime);
      };
      CHECK_EQUAL(device.go(late), PTO_ERROR_DEADLOCK);
    }
    CHECK_EQUAL(record.count.load(), 0u);
    device.works_again();
  }
}

}  // namespace

TEST(a_blocked_submit_continues_when_the_window_has_space) {
  for (const Way& way : every_way()) {
    Blocking device(way);
    Record record(300);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    CHECK_EQUAL(device.go(chain(func_id, 300)), PTO_OK);
    for (size_t i = 0; i < 300; ++i) CHECK_EQUAL(record.order[i].load(), static_cast<int64_t>(i));
  }
}

TEST(a_blocked_submit_continues_on_one_processor) {
  const OneProcessor one;
  for (const Way& way : every_way()) {
    Blocking device(way);
    Record record(300);
    CHECK_EQUAL(device.go(chain(device.kernel(Record::kernel, &record), 300)), PTO_OK);
    CHECK_EQUAL(record.count.load(), 300u);
  }
}

TEST(a_deadlock_is_proven_at_each_blocked_submit) {
  proofs_come_at_once(200);
}

TEST(a_deadlock_is_proven_on_one_processor) {
  const OneProcessor one;
  proofs_come_at_once(20);
}

TEST(an_orchestration_may_continue_after_a_proven_deadlock) {
  for (const Way& way : every_way()) {
    Blocking device(way);
    device.runtime->set_plans(true);
    Record record(1);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    std::atomic<bool> returned{false};
    const toy::Program stuck = device.stuck(func_id, 1000);
    const toy::Program slow = [&](toy::Runtime& runtime) {
      stuck(runtime);
      CHECK(runtime.planning());
      // Long enough for all other threads to fall asleep, or to end the run.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      stuck(runtime);
      returned = true;
      return 0;
    };
    CHECK_EQUAL(device.go(slow), PTO_ERROR_DEADLOCK);
    CHECK(returned);
    CHECK_EQUAL(std::string(device.error.message), "toy: stuck; planned 1998 more");
    CHECK_EQUAL(record.count.load(), 0u);
    device.works_again();
  }
}

TEST(the_run_ends_after_its_library_has_returned) {
  for (const char* mode : {"threads", "deterministic"}) {
    Blocking device({mode, 2, false, 3});
    device.runtime->set_plans(true);
    const int32_t func_id = device.kernel(Record::kernel);
    std::atomic<bool> planning{false};
    std::atomic<bool> may_return{false};
    const toy::Program stuck = device.stuck(func_id, 10);
    const toy::Program held = [&](toy::Runtime& runtime) {
      stuck(runtime);
      planning = true;
      planning.notify_all();
      may_return.wait(false);
      return 0;
    };
    device.begin(&held);
    CHECK_EQUAL(device.api->wait(device.device, 1'000'000), PTO_PENDING);
    planning.wait(false);
    CHECK_EQUAL(device.api->wait(device.device, 1'000'000), PTO_PENDING);
    may_return = true;
    may_return.notify_all();
    CHECK_EQUAL(device.finish(), PTO_ERROR_DEADLOCK);
    device.works_again();
  }
}

TEST(an_abort_ends_a_planning_orchestration) {
  for (const Way& way : every_way()) {
    if (way.threads != 1 && way.threads != 3) continue;
    Blocking device(way);
    device.runtime->set_plans(true);
    const int32_t func_id = device.kernel(Record::kernel);
    std::atomic<bool> planning{false};
    const toy::Program stuck = device.stuck(func_id, 10);
    const toy::Program endless = [&](toy::Runtime& runtime) {
      stuck(runtime);
      planning = true;
      planning.notify_all();
      while (runtime.submit(func_id, PTO_CORE_AIV) >= 0) {
      }
      return 0;
    };
    std::thread aborting([&] {
      planning.wait(false);
      device.api->abort(device.device, nullptr, 0);
    });
    CHECK_EQUAL(device.go(endless), PTO_ERROR_DEADLOCK);
    aborting.join();
    device.works_again();
  }
}

TEST(an_abort_ends_a_blocked_submit) {
  for (const Way& way : every_way()) {
    if (way.mode != "threads") continue;
    Blocking device(way);
    struct Gate {
      std::atomic<bool> entered{false};
      std::atomic<bool> open{false};
    } gate;
    const auto wait = [](void* context, const pto_payload*, uint32_t, pto_error*) -> int32_t {
      auto& held = *static_cast<Gate*>(context);
      held.entered = true;
      held.entered.notify_all();
      held.open.wait(false);
      return 0;
    };
    const int32_t func_id = device.kernel(wait, &gate);
    std::thread aborting([&] {
      gate.entered.wait(false);
      device.api->abort(device.device, nullptr, 0);
      gate.open = true;
      gate.open.notify_all();
    });
    CHECK_EQUAL(device.go([&](toy::Runtime& runtime) {
      for (int i = 0; i < 10; ++i) runtime.submit(func_id, PTO_CORE_AIV);
      return 0;
    }),
                PTO_ERROR_ABORTED);
    aborting.join();
    device.works_again();
  }
}

// stalled() reads data of the wait that lies on the orchestrator's stack, so the orchestrator must
// not leave the wait.
TEST(an_abort_keeps_the_orchestrator_in_an_examined_wait) {
  constexpr int kAttempts = 1000;
  for (const Way& way : every_way()) {
    if (way.mode != "threads") continue;
    Blocking device(way);
    const int32_t func_id = device.kernel(Record::kernel);
    int examined = 0;
    device.runtime->at_stall = [&] {
      ++examined;
      CHECK(device.runtime->is_in_wait);
      std::thread([&] { device.api->abort(device.device, nullptr, 0); }).join();
      for (int attempt = 0; attempt < kAttempts; ++attempt) {
        CHECK(device.runtime->is_in_wait);
        sched_yield();
      }
    };
    CHECK_EQUAL(device.go(device.stuck(func_id, 10)), PTO_ERROR_ABORTED);
    CHECK_EQUAL(examined, 1);
    CHECK(!device.runtime->is_in_wait);
    device.runtime->at_stall = [] {};
    device.works_again();
  }
}

// Simulates Ctrl-C: a waiting submit calls the caller's attend hook at intervals, and the hook
// aborts the run.
TEST(a_waiting_caller_is_attended_and_may_abort) {
  for (const Way& way : every_way()) {
    if (!way.here || way.threads == 2) continue;
    Blocking device(way);
    struct Held {
      Blocking& device;
      std::atomic<bool> open{false};
      int asked = 0;
    } held{device};
    const auto wait = [](void* context, const pto_payload*, uint32_t, pto_error*) -> int32_t {
      static_cast<Held*>(context)->open.wait(false);
      return 0;
    };
    const int32_t func_id = device.kernel(wait, &held);
    device.attend = [](void* context) {
      auto& of = *static_cast<Held*>(context);
      if (++of.asked > 1) return;
      of.device.api->abort(of.device.device, nullptr, 0);
      of.open = true;
      of.open.notify_all();
    };
    device.attend_context = &held;
    CHECK_EQUAL(device.go([&](toy::Runtime& runtime) {
      for (int i = 0; i < 10; ++i) runtime.submit(func_id, PTO_CORE_AIV);
      return 0;
    }),
                PTO_ERROR_ABORTED);
    CHECK(held.asked >= 1);
    device.attend = nullptr;
    device.works_again();
  }
}

// The backend calls the runtime's attend() even if all threads are inside kernels. The caller's
// thread in deterministic mode is excluded: it may run a kernel at a yield point, and then no
// thread is left to call attend().
TEST(a_submit_behind_a_long_kernel_attends_the_runtime) {
  for (const Way& way : every_way()) {
    if (way.threads != 2 || (way.here && way.mode == "deterministic")) continue;
    Blocking device(way);
    const auto wait = [](void* context, const pto_payload*, uint32_t, pto_error*) -> int32_t {
      const auto& attended = static_cast<toy::Runtime*>(context)->attended;
      for (int attempt = 0; attempt < 2000 && attended < 2; ++attempt) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      return attended < 2;
    };
    const int32_t func_id = device.kernel(wait, device.runtime);
    CHECK_EQUAL(device.go([&](toy::Runtime& runtime) {
      for (int i = 0; i < 4; ++i) runtime.submit(func_id, PTO_CORE_AIV);
      return 0;
    }),
                PTO_OK);
    device.works_again();
  }
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
