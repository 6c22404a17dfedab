// The stepper: runs tasks in a correct order, with the same hash for the same seed, and in many
// orders for many seeds.
//
// `deterministic_test --hash SEED` prints the hash of one run, for comparison between processes.
#include <cinttypes>
#include <cstdlib>
#include <set>

#include "graphs.hpp"

namespace {

constexpr int64_t kWidth = 8;
constexpr int64_t kLayers = 2;
constexpr size_t kTasks = (kWidth + 2) * kLayers;

struct Outcome {
  uint64_t hash;
  std::vector<int64_t> order;
};

Outcome run_diamonds(uint64_t seed, toy::Variant variant = toy::concurrent, bool here = false) {
  Fixture device({{"mode", "deterministic"}, {"seed", std::to_string(seed)}}, variant);
  Record record(kTasks);
  const int32_t func_id = device.kernel(Record::kernel, &record);
  const toy::Program program = diamonds(func_id, kWidth, kLayers);
  CHECK_EQUAL(here ? device.run_from_here(program) : device.run(program), PTO_OK);
  CHECK_EQUAL(record.count.load(), kTasks);
  check_diamonds(record, kWidth, kLayers);
  return {device.report.trace_hash, {record.order.begin(), record.order.end()}};
}

}  // namespace

TEST(one_seed_gives_one_trace) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const auto variant : {toy::host_built, toy::concurrent}) {
      for (const bool here : {false, true}) {
        const Outcome first = run_diamonds(seed, variant, here);
        const Outcome second = run_diamonds(seed, variant, here);
        CHECK(first.hash != 0);
        CHECK_EQUAL(first.hash, second.hash);
        CHECK(first.order == second.order);
      }
    }
  }
}

TEST(a_thousand_seeds_give_many_traces) {
  std::set<uint64_t> hashes;
  std::set<std::vector<int64_t>> orders;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Outcome outcome = run_diamonds(seed);
    hashes.insert(outcome.hash);
    orders.insert(outcome.order);
  }
  std::fprintf(stderr, "%zu hashes, %zu orders of kernels\n", hashes.size(), orders.size());
  CHECK(hashes.size() >= 900);
  CHECK(orders.size() >= 900);
}

TEST(a_device_repeats_its_run) {
  Fixture device({{"mode", "deterministic"}, {"seed", "5"}});
  Record record(3 * kTasks);
  const toy::Program program = diamonds(device.kernel(Record::kernel, &record), kWidth, kLayers);
  CHECK_EQUAL(device.run(program), PTO_OK);
  const uint64_t first = device.report.trace_hash;
  CHECK_EQUAL(device.run(program), PTO_OK);
  CHECK_EQUAL(device.report.trace_hash, first);
}

TEST(every_number_of_threads_works) {
  for (const auto variant : {toy::host_built, toy::concurrent}) {
    for (int32_t threads = 1; threads <= 4; ++threads) {
      Fixture device({{"mode", "deterministic"}}, variant);
      device.config.aicpu_thread_num = threads;
      Record record(400);
      const int32_t func_id = device.kernel(Record::kernel, &record);
      CHECK_EQUAL(device.run(diamonds(func_id, 18, 10)), PTO_OK);
      CHECK_EQUAL(device.run_from_here(diamonds(func_id, 18, 10)), PTO_OK);
      CHECK_EQUAL(record.count.load(), 400u);
    }
  }
}

TEST(a_blocked_submit_steps_other_agents) {
  for (int32_t threads = 1; threads <= 4; ++threads) {
    Fixture device({{"mode", "deterministic"}}, toy::concurrent);
    device.config.aicpu_thread_num = threads;
    Record record(600);
    device.runtime->set_window(4);
    const int32_t func_id = device.kernel(Record::kernel, &record);
    CHECK_EQUAL(device.run(chain(func_id, 300)), PTO_OK);
    CHECK_EQUAL(device.run_from_here(chain(func_id, 300)), PTO_OK);
    CHECK_EQUAL(record.count.load(), 600u);
  }
}

TEST(an_unresolvable_stall_is_a_deadlock) {
  for (const bool here : {false, true}) {
    for (int32_t threads = 1; threads <= 4; ++threads) {
      Fixture device({{"mode", "deterministic"}}, toy::concurrent);
      device.config.aicpu_thread_num = threads;
      Record record(10);
      const int32_t func_id = device.kernel(Record::kernel, &record);
      device.runtime->set_window(2);
      device.runtime->set_keeps_hold(true);
      device.runtime->hold_next();
      const toy::Program program = chain(func_id, 5);
      CHECK_EQUAL(here ? device.run_from_here(program) : device.run(program), PTO_ERROR_DEADLOCK);
      CHECK_EQUAL(record.count.load(), 0u);
      device.runtime->set_keeps_hold(false);
      CHECK_EQUAL(device.run(program), PTO_OK);
    }
  }
}

TEST(waiting_for_the_next_submit_is_no_deadlock) {
  Fixture device({{"mode", "deterministic"}}, toy::concurrent);
  Record record(1);
  const int32_t func_id = device.kernel(Record::kernel, &record);
  device.begin(nullptr);
  CHECK_EQUAL(device.api->wait(device.device, 1'000'000), PTO_PENDING);
  device.api->orchestration_done(device.device, chain(func_id, 1)(*device.runtime));
  CHECK_EQUAL(device.finish(), PTO_OK);
}

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--hash") == 0) {
    std::printf("%016" PRIx64 "\n", run_diamonds(std::strtoull(argv[2], nullptr, 10)).hash);
    return 0;
  }
  return check::run(argc, argv);
}
