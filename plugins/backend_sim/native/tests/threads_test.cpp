// The pool: graphs run in a correct order for every shape, for each thread that may submit, and
// under load.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "graphs.hpp"

namespace {

Fixture::Option workers(int count) {
  return {"workers", std::to_string(count)};
}

toy::Program with_window(uint32_t window, const toy::Program& program) {
  return [=](toy::Runtime& runtime) {
    runtime.set_window(window);
    const int32_t result = program(runtime);
    runtime.set_window(0);
    return result;
  };
}

// Counts the threads of this process that are workers of a device. They end shortly after the
// device is closed. With `state`, counts only threads in that state, in the notation of proc(5).
size_t live_workers(char state = 0) {
  size_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string text;
    std::getline(std::ifstream(thread.path() / "stat"), text);
    const size_t name = text.find("(pto-sim) ");
    if (name != std::string::npos && (state == 0 || text[name + 10] == state)) ++count;
  }
  return count;
}

struct Threads {
  static int32_t kernel(void* context, const pto_payload*, uint32_t, pto_error*) {
    auto& threads = *static_cast<Threads*>(context);
    const std::lock_guard lock(threads.mutex);
    threads.seen.insert(std::this_thread::get_id());
    return 0;
  }

  // Works for a few hundred microseconds.
  static int32_t long_kernel(void* context, const pto_payload* payload, uint32_t core,
                             pto_error* error) {
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < 500'000; ++i) sum = sum + i;
    return kernel(context, payload, core, error);
  }

  std::mutex mutex;
  std::set<std::thread::id> seen;
};

toy::Program independent(int32_t func_id, int64_t count) {
  return [=](toy::Runtime& runtime) {
    for (int64_t i = 0; i < count; ++i) runtime.submit(func_id, PTO_CORE_AIV);
    return 0;
  };
}

// A kernel that returns when a flag is set.
struct Gate {
  static int32_t kernel(void* context, const pto_payload*, uint32_t, pto_error*) {
    auto& gate = *static_cast<Gate*>(context);
    gate.entered.fetch_add(1);
    gate.entered.notify_all();
    gate.open.wait(false);
    gate.left.fetch_add(1);
    gate.left.notify_all();
    return 0;
  }

  void release() {
    open.store(true);
    open.notify_all();
  }

  std::atomic<int> entered{0};
  std::atomic<bool> open{false};
  std::atomic<int> left{0};
};

}  // namespace

TEST(chain_runs_in_order) {
  Fixture device({workers(2)});
  Record record(1000);
  const int32_t func_id = device.kernel(Record::kernel, &record);
  CHECK_EQUAL(device.run(chain(func_id, 1000)), PTO_OK);
  CHECK_EQUAL(device.report.tasks, 1000u);
  CHECK_EQUAL(device.report.trace_hash, 0u);
  for (size_t i = 0; i < 1000; ++i) CHECK_EQUAL(record.order[i].load(), static_cast<int64_t>(i));
}

TEST(diamonds_run_in_order_in_every_shape) {
  for (const auto variant : {toy::host_built, toy::concurrent}) {
    for (const int count : {1, 2, 4}) {
      Fixture device({workers(count)}, variant);
      for (int32_t threads = 1; threads <= 4; ++threads) {
        for (const int32_t blocks : {1, 2, 0}) {
          device.config.aicpu_thread_num = threads;
          device.config.block_dim = blocks;
          device.kernels.clear();
          Record here(200);
          Record there(200);
          const int32_t first = device.kernel(Record::kernel, &here);
          const int32_t second = device.kernel(Record::kernel, &there);
          CHECK_EQUAL(device.run_from_here(diamonds(first, 18, 10)), PTO_OK);
          check_diamonds(here, 18, 10);
          CHECK_EQUAL(device.run(diamonds(second, 18, 10)), PTO_OK);
          check_diamonds(there, 18, 10);
        }
      }
    }
  }
}

TEST(submit_blocks_until_the_window_has_space) {
  for (const int count : {1, 2}) {
    Fixture device({workers(count)}, toy::concurrent);
    for (int32_t threads = 1; threads <= 4; ++threads) {
      device.config.aicpu_thread_num = threads;
      device.kernels.clear();
      Record here(1000);
      Record there(1000);
      const int32_t first = device.kernel(Record::kernel, &here);
      const int32_t second = device.kernel(Record::kernel, &there);
      CHECK_EQUAL(device.run_from_here(with_window(4, chain(first, 500))), PTO_OK);
      CHECK_EQUAL(here.count.load(), 500u);
      CHECK_EQUAL(device.run(with_window(4, chain(second, 500))), PTO_OK);
      CHECK_EQUAL(there.count.load(), 500u);
    }
  }
}

TEST(a_resolvable_stall_is_resolved) {
  for (const auto variant : {toy::host_built, toy::concurrent}) {
    Fixture device({workers(2)}, variant);
    Record record(10);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    const toy::Program program = [&](toy::Runtime& runtime) {
      runtime.hold_next();
      const int64_t held = runtime.submit(func_id, PTO_CORE_AIV);
      runtime.submit(func_id, PTO_CORE_AIV, {}, {held});
      return 0;
    };
    CHECK_EQUAL(device.run(program), PTO_OK);
    CHECK_EQUAL(record.count.load(), 2u);
    CHECK_EQUAL(record.order[0].load(), 0);
  }
}

// Invariant: A stall is proven without a timer: every scheduler has been idle since the last event,
// no core runs, no wake-up is pending, and the orchestrator has ended or waits.
TEST(an_unresolvable_stall_is_a_deadlock) {
  for (const int count : {1, 2}) {
    for (const bool here : {false, true}) {
      Fixture device({workers(count)}, toy::concurrent);
      Record record(10);
      const int32_t func_id = device.kernel(Record::kernel, &record);
      for (const uint32_t window : {0u, 2u}) {
        for (int32_t threads = 1; threads <= 4; ++threads) {
          device.config.aicpu_thread_num = threads;
          const toy::Program stuck = with_window(window, [&](toy::Runtime& runtime) {
            runtime.hold_next();
            runtime.set_keeps_hold(true);
            int64_t last = runtime.submit(func_id, PTO_CORE_AIV);
            for (int i = 0; i < 4; ++i) last = runtime.submit(func_id, PTO_CORE_AIV, {}, {last});
            return 0;
          });
          CHECK_EQUAL(here ? device.run_from_here(stuck) : device.run(stuck), PTO_ERROR_DEADLOCK);
          device.runtime->set_window(0);
          device.runtime->set_keeps_hold(false);
        }
      }
      CHECK_EQUAL(record.count.load(), 0u);
      CHECK_EQUAL(device.run(chain(func_id, 5)), PTO_OK);
    }
  }
}

// Invariant: In `threads` mode the caller's thread runs no kernel.
TEST(long_kernels_run_on_all_workers_and_not_on_the_caller) {
  Fixture device({workers(2)});
  Threads threads;
  const int32_t short_one = device.kernel(Threads::kernel, &threads);
  const int32_t long_one = device.kernel(Threads::long_kernel, &threads);
  CHECK_EQUAL(device.run_from_here(independent(short_one, 1000)), PTO_OK);
  while (threads.seen.size() < 2) {
    CHECK_EQUAL(device.run_from_here(independent(long_one, 100)), PTO_OK);
  }
  CHECK_EQUAL(threads.seen.size(), 2u);
  CHECK(threads.seen.count(std::this_thread::get_id()) == 0);
}

// The first batch of a device is shared, because its kernels have not been timed. The next batch is
// timed and is short. If it took back the two tasks that are shared, they would deadlock in one
// batch: the first one waits for the second.
TEST(one_short_kernel_does_not_take_back_shared_cores) {
  for (int i = 0; i < 10; ++i) {
    // wait until the threads of the previous device have ended
    while (live_workers() != 0) std::this_thread::yield();
    Fixture device({workers(2)});
    device.config.aicpu_thread_num = 1;
    const int32_t short_one = device.kernel_of(PTO_KERNEL_LIBRARY, "kernel_entry");
    const int32_t wait = device.kernel_of(PTO_KERNEL_LIBRARY, "wait_entry");
    const int32_t tell = device.kernel_of(PTO_KERNEL_LIBRARY, "tell_entry");
    // wait until both workers sleep, so that one must be woken
    while (live_workers('S') != 2) std::this_thread::yield();
    int64_t words[2] = {0, 0};
    const auto address = reinterpret_cast<uint64_t>(words);
    CHECK_EQUAL(device.run_from_here([&](toy::Runtime& runtime) {
      const int64_t first = runtime.submit(short_one, PTO_CORE_AIV, {1});
      runtime.submit(wait, PTO_CORE_AIV, {address});
      runtime.submit(tell, PTO_CORE_AIV, {address});
      runtime.submit(short_one, PTO_CORE_AIV, {1}, {first});
      return 0;
    }),
                PTO_OK);
    CHECK_EQUAL(words[1], 0);
  }
}

TEST(a_failing_kernel_ends_the_run) {
  Fixture device({workers(2)});
  const auto failing = [](void*, const pto_payload*, uint32_t, pto_error* error) -> int32_t {
    std::snprintf(error->message, sizeof error->message, "no good");
    return 1;
  };
  const auto silent = [](void*, const pto_payload*, uint32_t, pto_error*) -> int32_t { return 3; };
  device.kernel(failing, nullptr, "picky");
  device.kernel(silent, nullptr, "silent");
  CHECK_EQUAL(device.run(chain(0, 100)), PTO_ERROR_KERNEL);
  CHECK_EQUAL(std::string(device.error.message), "no good");
  CHECK_EQUAL(device.error.task, 0);
  CHECK_EQUAL(device.error.func_id, 0);
  CHECK_EQUAL(device.error.core, 24);
  CHECK_EQUAL(device.run(chain(1, 100)), PTO_ERROR_KERNEL);
  CHECK(std::strstr(device.error.message, "silent") != nullptr);
  CHECK(std::strstr(device.error.message, "returned 3") != nullptr);
}

TEST(abort_waits_for_running_kernels) {
  Fixture device({workers(2)});
  Gate gate;
  Record record(10);
  const int32_t blocked = device.kernel(Gate::kernel, &gate);
  const int32_t after = device.kernel(Record::kernel, &record);
  const toy::Program program = [&](toy::Runtime& runtime) {
    const int64_t first = runtime.submit(blocked, PTO_CORE_AIV);
    runtime.submit(after, PTO_CORE_AIV, {}, {first});
    return 0;
  };
  device.begin(&program);
  gate.entered.wait(0);
  CHECK_EQUAL(device.api->wait(device.device, 0), PTO_PENDING);
  CHECK_EQUAL(device.api->wait(device.device, 1'000'000), PTO_PENDING);
  CHECK_EQUAL(device.api->finish(device.device, nullptr, &device.error), PTO_ERROR_USAGE);
  pto_error cause{};
  cause.status = PTO_ERROR_ABORTED;
  std::snprintf(cause.message, sizeof cause.message, "enough");
  device.api->abort(device.device, &cause, 0);
  CHECK_EQUAL(device.api->wait(device.device, 1'000'000), PTO_PENDING);
  gate.release();
  CHECK_EQUAL(device.finish(), PTO_ERROR_ABORTED);
  CHECK_EQUAL(std::string(device.error.message), "enough");
  CHECK_EQUAL(record.count.load(), 0u);
  CHECK_EQUAL(device.run(chain(after, 10)), PTO_OK);
}

TEST(abort_ends_a_blocked_submit) {
  for (const bool here : {false, true}) {
    Fixture device({workers(2)}, toy::concurrent);
    Gate gate;
    const int32_t blocked = device.kernel(Gate::kernel, &gate);
    const toy::Program program = with_window(2, independent(blocked, 10));
    device.begin(here ? nullptr : &program);
    std::thread aborting([&] {
      gate.entered.wait(0);
      device.api->abort(device.device, nullptr, 0);
      gate.release();
    });
    if (here) device.api->orchestration_done(device.device, program(*device.runtime));
    CHECK_EQUAL(device.finish(), PTO_ERROR_ABORTED);
    aborting.join();
  }
}

TEST(a_lost_device_abandons_its_kernels) {
  // This object outlives the device, because the abandoned thread still uses it.
  static Gate gate;
  {
    Fixture device({workers(2)});
    const toy::Program program = independent(device.kernel(Gate::kernel, &gate), 1);
    device.begin(&program);
    gate.entered.wait(0);
    device.api->abort(device.device, nullptr, 1);
    CHECK_EQUAL(device.api->wait(device.device, 0), PTO_OK);
    CHECK_EQUAL(device.api->finish(device.device, nullptr, &device.error), PTO_ERROR_LOST);
    uint64_t address = 0;
    CHECK_EQUAL(device.api->allocate(device.device, 1, &address, &device.error), PTO_ERROR_LOST);
    CHECK_EQUAL(device.start(nullptr), PTO_ERROR_LOST);
  }
  gate.release();
  gate.left.wait(0);
}

TEST(a_lost_device_ends_all_threads_but_the_stuck_one) {
  static Gate gate;
  // wait until the threads of other tests have ended
  while (live_workers() != 0) std::this_thread::yield();
  {
    Fixture device({workers(4)});
    const toy::Program program = independent(device.kernel(Gate::kernel, &gate), 1);
    device.begin(&program);
    gate.entered.wait(0);
    // wait for one worker in the kernel and three parked workers
    while (live_workers('S') != 4) std::this_thread::yield();
    device.api->abort(device.device, nullptr, 1);
  }
  while (live_workers() != 1) std::this_thread::yield();
  gate.release();
  while (live_workers() != 0) std::this_thread::yield();
}

TEST(closing_a_device_ends_its_run_and_its_threads) {
  // wait until the threads of other tests have ended
  while (live_workers() != 0) std::this_thread::yield();
  Record record(100'000);
  {
    Fixture device({workers(2)});
    const toy::Program program = chain(device.kernel(Record::kernel, &record), 1000);
    device.begin(&program);
    const pto_leak_report leaks = device.close();
    CHECK_EQUAL(leaks.buffers, 0u);
  }
  const size_t ran = record.count.load();
  CHECK(ran <= 1000u);
  while (live_workers() != 0) std::this_thread::yield();
  CHECK_EQUAL(record.count.load(), ran);
  Fixture next({workers(2)});
  CHECK_EQUAL(next.run(chain(next.kernel(Record::kernel, &record), 10)), PTO_OK);
  CHECK_EQUAL(record.count.load(), ran + 10);
}

TEST(many_small_runs_succeed_in_sequence) {
  for (const int count : {1, 2, 3}) {
    Fixture device({workers(count)});
    Record record(4000);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    for (int i = 0; i < 1000; ++i) {
      CHECK_EQUAL(device.run(chain(func_id, 1)), PTO_OK);
      CHECK_EQUAL(device.run_from_here(chain(func_id, 2)), PTO_OK);
    }
    CHECK_EQUAL(record.count.load(), 3000u);
  }
}

TEST(two_devices_run_concurrently) {
  const auto work = [] {
    Fixture device({workers(2)});
    Record record(2000);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    for (int i = 0; i < 10; ++i) CHECK_EQUAL(device.run(diamonds(func_id, 18, 10)), PTO_OK);
    CHECK_EQUAL(record.count.load(), 2000u);
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
}

TEST(a_shape_larger_than_the_device_is_refused) {
  Fixture device({{"blocks", "4"}});
  device.config.block_dim = 5;
  CHECK_EQUAL(device.start(nullptr), PTO_ERROR_USAGE);
  CHECK(std::strstr(device.error.message, "block_dim is 5") != nullptr);
  CHECK(std::strstr(device.error.message, "4 blocks") != nullptr);
  device.config.block_dim = 4;
  for (const int32_t threads : {0, 5, -1}) {
    device.config.aicpu_thread_num = threads;
    CHECK_EQUAL(device.start(nullptr), PTO_ERROR_USAGE);
  }
}

TEST(timing_sums_the_busy_time_of_cores) {
  Fixture device({{"workers", "2"}, {"timing", "1"}});
  Threads threads;
  const int32_t func_id = device.kernel(Threads::long_kernel, &threads);
  for (const int64_t count : {10, 1}) {  // the second run uses fewer cores than the first one
    CHECK_EQUAL(device.run(independent(func_id, count)), PTO_OK);
    uint64_t tasks = 0;
    for (const pto_core_usage& usage : device.report.cores) {
      CHECK((usage.tasks == 0) == (usage.busy_ns == 0));
      tasks += usage.tasks;
    }
    CHECK_EQUAL(tasks, static_cast<uint64_t>(count));
  }
}

TEST(a_lost_device_counts_only_its_callers_buffers) {
  static Gate gate;
  Fixture device({workers(2)});
  uint64_t kept = 0;
  CHECK_EQUAL(device.api->allocate(device.device, 10, &kept, &device.error), PTO_OK);
  const int32_t func_id = device.kernel(Gate::kernel, &gate);
  const toy::Program program = [&](toy::Runtime& runtime) {
    const pto_platform& platform = runtime.platform();
    uint64_t address = 0;
    CHECK_EQUAL(platform.allocate(platform.self, 1000, &address), PTO_OK);
    CHECK_EQUAL(platform.allocate_ring(platform.self, 1000, &address), PTO_OK);
    runtime.submit(func_id, PTO_CORE_AIV);
    return 0;
  };
  device.begin(&program);
  gate.entered.wait(0);
  device.api->abort(device.device, nullptr, 1);
  const pto_leak_report leaks = device.close();
  CHECK_EQUAL(leaks.buffers, 1u);
  CHECK_EQUAL(leaks.bytes, 10u);
  gate.release();
  gate.left.wait(0);
}

// Another thread holds a lock of the device most of the time, so the child inherits a lock that no
// thread will release.
TEST(a_forked_child_can_close_a_device_that_is_in_use) {
  Fixture device({{"workers", "1"}, {"check", "1"}});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      uint64_t address = 0;
      pto_error error;
      CHECK_EQUAL(device.api->allocate(device.device, 1 << 20, &address, &error), PTO_OK);
      CHECK_EQUAL(device.api->free(device.device, address, &error), PTO_OK);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      device.close();
      _exit(0);
    }
    int status = 0;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
  }
  stop = true;
  busy.join();
}

TEST(a_forked_child_cannot_use_a_device) {
  Fixture device({workers(1)});
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = device.start(nullptr) == PTO_ERROR_USAGE;
    device.close();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
}

int main(int argc, char** argv) {
  return check::run(argc, argv);
}
