// The two sides of a core over memory that is not coherent: handshake, tasks, faults, leaving.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "check.hpp"
#include "core/core_link.hpp"
#include "core/executor.hpp"
#include "worst_memory.hpp"

namespace {

using pto::a2a3::CoreLink;
using pto::a2a3::CoreTaskState;
using pto::a2a3::Executor;

constexpr uint32_t kCore = 2 + 1;  // AIV 1 of two blocks
constexpr uint64_t kPage = 0x1000000;
constexpr uint64_t kFlagBase = 0x2000000;

// output = sum of the data that the first argument points to, which is in the slot.
void add(uint64_t* arguments) {
  const uint64_t data = worst::Core::load(&arguments[0]);
  auto* output = reinterpret_cast<uint64_t*>(worst::Core::load(&arguments[1]));
  const auto* values = reinterpret_cast<const uint64_t*>(data);
  const uint64_t sum = worst::Core::load(&values[0]) + worst::Core::load(&values[100]);
  worst::Core::store(output, worst::Core::load(output) + sum);
}

struct alignas(PTO_A2A3_LINE) Output {
  uint64_t value = 0;
  uint64_t pad[7] = {};
};

struct Task {
  pto_payload header{};
  uint64_t arguments[2];
  uint64_t data[101] = {};

  Task(uint64_t kernel, Output& output, uint64_t value) {
    header.kernel = kernel;
    header.num_args = 2;
    header.relative_args = 1;
    arguments[0] = sizeof header + sizeof arguments;
    arguments[1] = reinterpret_cast<uint64_t>(&output);
    data[0] = value;
    data[100] = 1000;
  }
};

const uint64_t kAdd = reinterpret_cast<uint64_t>(&add);

// The AICPU side, and a thread that is the core.
class Bench {
 public:
  Bench() : cores_(std::make_unique<pto_a2a3_cores>()) {
    worst::machine = &machine_;
    worst::shared_cores = cores_.get();
    machine_.page = kPage;
    bind(0);
  }
  ~Bench() {
    if (core_.joinable()) leave();
  }

  void bind(uint32_t sequence) {
    link_.bind(&cores_->slot[kCore], &cores_->handshake[kCore], sequence);
  }
  void start(uint64_t launch) {
    machine_.registers[kPage + PTO_A2A3_DATA_MAIN_BASE] = 0;
    machine_.core.cache.clear();
    core_ = std::thread([this, launch] {
      Executor<worst::Core>({reinterpret_cast<uint64_t>(cores_.get()), launch, kFlagBase, 0}).run();
    });
  }
  void open(uint64_t launch) {
    wait_for([&] { return link_.has_reported(launch); }, "the core does not report");
    link_.open(kPage, launch);
    wait_for([&] { return link_.is_ready(); }, "the core is not ready");
  }
  CoreTaskState run(const Task& task) {
    link_.dispatch(task.header, sizeof task);
    CoreTaskState state = CoreTaskState::running;
    wait_for([&] { return (state = link_.poll()) != CoreTaskState::running; },
             "the task does not end");
    return state;
  }
  void leave() {
    link_.ask_to_leave();
    wait_for([&] { return link_.has_left(); }, "the core does not leave");
    link_.close();
    core_.join();
  }
  uint64_t read(const Output& output) {
    uint64_t value = 0;
    worst::Aicpu::invalidate(&output, sizeof output);
    worst::Machine::read(machine_.aicpu, &value, reinterpret_cast<uint64_t>(&output), 8);
    return value;
  }
  uint32_t value_of(uint32_t offset) { return worst::Core::load_register(kPage + offset); }
  void join() { core_.join(); }

  CoreLink<worst::Aicpu>& link() { return link_; }
  pto_a2a3_cores& cores() { return *cores_; }
  worst::Machine& machine() { return machine_; }

 private:
  template <class Condition>
  void wait_for(Condition condition, const char* complaint) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (std::chrono::steady_clock::now() < end) {
      if (condition()) return;
      sched_yield();
    }
    check::fail(__FILE__, __LINE__, complaint);
  }

  worst::Machine machine_;
  std::unique_ptr<pto_a2a3_cores> cores_;
  CoreLink<worst::Aicpu> link_;
  std::thread core_;
};

TEST(a_core_reports_its_place_and_becomes_ready) {
  Bench bench;
  bench.start(1);
  bench.open(1);
  CHECK_EQUAL(bench.link().physical(), 42u);
  CHECK_EQUAL(bench.link().core_type(), uint32_t{PTO_CORE_AIV});
  CHECK_EQUAL(bench.value_of(PTO_A2A3_FAST_PATH_ENABLE), PTO_A2A3_FAST_PATH_OPEN);
  CHECK_EQUAL(bench.machine().flag_base, kFlagBase);
  bench.leave();
  CHECK_EQUAL(bench.value_of(PTO_A2A3_FAST_PATH_ENABLE), PTO_A2A3_FAST_PATH_CLOSE);
  CHECK_EQUAL(bench.machine().doorbell_at_close, pto_a2a3_idle(1));
}

TEST(tasks_read_new_payloads_and_write_outputs) {
  Bench bench;
  Output output;
  bench.start(1);
  bench.open(1);
  uint64_t expected = 0;
  for (uint64_t i = 1; i <= 20; ++i) {
    CHECK(bench.run(Task(kAdd, output, i)) == CoreTaskState::finished);
    expected += 1000 + i;
    CHECK_EQUAL(bench.read(output), expected);
  }
  CHECK_EQUAL(bench.machine().calls, uint64_t{20});
}

// The host, or another core, changes what a later task of the same core reads.
TEST(a_task_reads_inputs_that_others_have_changed) {
  Bench bench;
  Output output;
  bench.start(1);
  bench.open(1);
  CHECK(bench.run(Task(kAdd, output, 1)) == CoreTaskState::finished);
  output.value = 5;
  CHECK(bench.run(Task(kAdd, output, 2)) == CoreTaskState::finished);
  CHECK_EQUAL(bench.read(output), uint64_t{5 + 1002});
}

TEST(a_task_that_runs_is_not_finished) {
  Bench bench;
  static std::atomic<bool> go;
  go = false;
  bench.start(1);
  bench.open(1);
  const auto hold = +[](uint64_t*) {
    while (!go) sched_yield();
  };
  Output output;
  const Task task(reinterpret_cast<uint64_t>(hold), output, 0);
  bench.link().dispatch(task.header, sizeof task);
  for (int i = 0; i < 100; ++i) CHECK(bench.link().poll() == CoreTaskState::running);
  const uint32_t cond = bench.value_of(PTO_A2A3_COND);
  go = true;
  while (bench.link().poll() == CoreTaskState::running) sched_yield();
  CHECK(bench.link().poll() == CoreTaskState::finished);
  CHECK((cond & PTO_COND_FINISHED) != 0 || cond == bench.link().sequence());
  CHECK_EQUAL(bench.cores().slot[kCore].sequence, bench.link().sequence());
}

TEST(sequence_numbers_skip_the_reserved_values) {
  Bench bench;
  Output output;
  bench.bind(PTO_SEQUENCE_MAX - 2);
  bench.start(1);
  bench.open(1);
  for (const uint32_t expected : {PTO_SEQUENCE_MAX - 1, PTO_SEQUENCE_MAX, 1u, 2u}) {
    CHECK(bench.run(Task(kAdd, output, 1)) == CoreTaskState::finished);
    CHECK_EQUAL(bench.link().sequence(), expected);
  }
}

TEST(a_second_launch_is_not_confused_by_the_first) {
  Bench bench;
  Output output;
  for (uint64_t launch = 1; launch <= 10; ++launch) {
    if (launch > 1) CHECK(!bench.link().has_reported(launch));
    bench.start(launch);
    bench.open(launch);
    CHECK(bench.run(Task(kAdd, output, 1)) == CoreTaskState::finished);
    bench.leave();
  }
  CHECK_EQUAL(bench.link().sequence(), 10u);
}

// The core of the launch before was killed, so COND has kept its value.
TEST(the_answer_of_an_earlier_launch_is_not_taken) {
  Bench bench;
  bench.link().open(kPage, 1);
  CHECK(!bench.link().is_ready());
  const uint32_t idle = bench.value_of(PTO_A2A3_DATA_MAIN_BASE);
  bench.machine().registers[kPage + PTO_A2A3_COND] = idle | PTO_COND_FINISHED;
  CHECK(bench.link().is_ready());
  bench.link().open(kPage, 2);
  CHECK(!bench.link().is_ready());
}

TEST(the_fault_of_an_earlier_task_is_not_that_of_the_next) {
  Bench bench;
  Output output;
  bench.machine().registers[kPage + PTO_A2A3_COND] = PTO_A2A3_COND_FAULT;
  bench.cores().handshake[kCore].expected = 1;
  bench.bind(1);
  bench.link().open(kPage, 1);
  const Task task(kAdd, output, 1);
  bench.link().dispatch(task.header, sizeof task);
  CHECK(bench.link().poll() == CoreTaskState::running);
  bench.cores().handshake[kCore].expected = 2;
  CHECK(bench.link().poll() == CoreTaskState::faulted);
}

TEST(a_kernel_that_cannot_be_one_is_a_fault_of_that_task_only) {
  Bench bench;
  Output output;
  bench.start(1);
  bench.open(1);
  CHECK(bench.run(Task(8, output, 1)) == CoreTaskState::faulted);
  const pto_a2a3_handshake report = bench.link().report();
  CHECK_EQUAL(report.fault, uint32_t{PTO_A2A3_FAULT_KERNEL});
  CHECK_EQUAL(report.value, uint64_t{8});
  CHECK_EQUAL(report.expected, bench.link().sequence());
  CHECK(bench.run(Task(kAdd, output, 1)) == CoreTaskState::finished);
  CHECK(bench.run(Task(8, output, 1)) == CoreTaskState::faulted);
  CHECK_EQUAL(bench.link().report().expected, bench.link().sequence());
}

TEST(a_core_whose_launch_was_given_up_leaves) {
  Bench bench;
  bench.cores().closed = 1;
  bench.start(1);
  bench.join();
  CHECK_EQUAL(bench.value_of(PTO_A2A3_COND), 0u);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
