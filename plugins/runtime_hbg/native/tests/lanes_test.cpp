// Tests of the scheduler, step by step. A scripted platform determines when a core finishes, and
// records wake-ups.
#include <sys/mman.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "variant_library.hpp"

namespace {

// The scripted platform: two scheduler threads with one block each. Thread t has the cores AIC t,
// AIV 2 + 2t and AIV 3 + 2t.
class Script {
 public:
  explicit Script(const char* variant) : api_(*load_variant(variant)) {
    topology_.blocks = 2;
    topology_.cores = 6;
    topology_.schedulers = 2;
    topology_.thread_cores[0].words[0] = 0b001101;
    topology_.thread_cores[1].words[0] = 0b110010;
    for (int core = 2; core < 6; ++core) topology_.core_type[core] = PTO_CORE_AIV;
    table_.abi_version = PTO_ABI_VERSION;
    table_.struct_size = sizeof table_;
    table_.self = this;
    table_.topology = &topology_;
    table_.timing = 1;
    table_.reserve = [](void* raw, size_t bytes) {
      const auto act = std::exchange(self(raw).on_next_reserve, nullptr);
      if (act) act();
      return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    };
    table_.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
    table_.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) self(raw).start(batch[i]);
    };
    table_.poll = [](void* raw, uint32_t thread, pto_poll_result* result) {
      *result = {};
      const uint64_t mine = self(raw).topology_.thread_cores[thread].words[0];
      result->done.words[0] = self(raw).finished_ & mine;
      self(raw).finished_ &= ~mine;
    };
    table_.wake = [](void* raw, uint32_t thread) { self(raw).woken.insert(thread); };
    table_.now = [](void* raw) { return ++self(raw).clock_; };
    pto_error error;
    CHECK_EQUAL(api_.create(&table_, nullptr, 0, &runtime_, &error), PTO_OK);
    run_.kernels = kernels_;
    run_.num_kernels = 2;
    CHECK_EQUAL(api_.begin(runtime_, &run_), PTO_OK);
  }

  ~Script() {
    api_.end(runtime_);
    api_.destroy(runtime_);
  }

  // From this call on, the platform reports the value 13 as an invalid address.
  void check_values() {
    table_.checking = 1;
    table_.check_value = [](void*, uint64_t value, pto_error* error) {
      std::strcpy(error->message, value == 13 ? "13 is not an address" : "");
      return pto_status{value == 13 ? PTO_ERROR_ADDRESS : PTO_OK};
    };
  }

  pto_error error() const {
    pto_error last{};
    api_.last_error(runtime_, &last);
    return last;
  }

  int64_t add_task(int32_t type, uint64_t argument) {
    const pto_task task{type, -1, 1, 0, &argument, 0, 0, nullptr};
    return api_.submit(runtime_, &task);
  }
  int64_t add_task(int32_t type) {
    const pto_task task{type, -1, 0, 0, nullptr, 0, 0, nullptr};
    return api_.submit(runtime_, &task);
  }
  void add_edge(int64_t from, int64_t to) {
    CHECK_EQUAL(api_.add_edge(runtime_, from, to), PTO_OK);
  }
  void publish(int64_t task) { CHECK_EQUAL(api_.publish(runtime_, task), PTO_OK); }
  void build_done() { api_.orchestration_done(runtime_, 0); }
  int32_t step(uint32_t thread) { return api_.schedule_step(runtime_, thread); }
  int32_t stalled() { return api_.stalled(runtime_); }

  void finish(int64_t task) {
    for (int core = 0; core < 6; ++core) {
      if (on_core_[core] != task) continue;
      finished_ |= uint64_t{1} << core;
      on_core_[core] = -1;
      return;
    }
    check::fail(__FILE__, __LINE__, "task " + std::to_string(task) + " is on no core");
  }

  std::vector<int64_t> started;
  std::set<uint32_t> woken;
  std::function<void()> on_next_reserve;

 private:
  static Script& self(void* platform) { return *static_cast<Script*>(platform); }

  void start(const pto_dispatch& item) {
    CHECK_EQUAL(on_core_[item.core], int64_t{-1});
    on_core_[item.core] = static_cast<int64_t>(item.payload->task);
    started.push_back(on_core_[item.core]);
  }

  const pto_runtime_api& api_;
  const pto_kernel_entry kernels_[2] = {{0, PTO_CORE_AIC, 1, "aic", nullptr},
                                        {1, PTO_CORE_AIV, 2, "aiv", nullptr}};
  pto_topology topology_{};
  pto_platform table_{};
  pto_run run_{};
  void* runtime_ = nullptr;
  int64_t on_core_[6] = {-1, -1, -1, -1, -1, -1};
  uint64_t finished_ = 0;
  uint64_t clock_ = 0;
};

TEST(released_tasks_wake_the_hungry_scheduler) {
  Script script("host_build_graph");
  script.add_task(PTO_CORE_AIV);
  for (int task = 1; task <= 5; ++task) {
    script.add_task(PTO_CORE_AIV);
    script.add_edge(0, task);
  }
  script.build_done();
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.step(1), PTO_STEP_IDLE);
  CHECK(script.woken.empty());
  script.finish(0);
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK(script.started == std::vector<int64_t>({0, 1, 2}));
  CHECK(script.woken == std::set<uint32_t>({1}));
  CHECK_EQUAL(script.step(1), PTO_STEP_PROGRESS);
  CHECK(script.started == std::vector<int64_t>({0, 1, 2, 3, 4}));
  CHECK_EQUAL(script.step(1), PTO_STEP_IDLE);
  script.finish(3);
  CHECK_EQUAL(script.step(1), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.started.back(), 5);
}

// Only one scheduler at a time moves its tasks to the shared queue, which requests memory for them.
TEST(a_scheduler_that_cannot_share_its_tasks_steps_again) {
  Script script("host_build_graph");
  for (int task = 0; task < 13; ++task) {
    script.add_task(PTO_CORE_AIV);
    if (task > 2) script.add_edge(task < 8 ? 0 : 2, task);
  }
  script.build_done();
  script.step(0);
  script.step(1);
  CHECK(script.started == std::vector<int64_t>({0, 1, 2}));
  script.finish(0);
  script.finish(2);
  std::vector<int32_t> answers;
  script.on_next_reserve = [&] {
    for (int step = 0; step < 2; ++step) answers.push_back(script.step(1));
  };
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK(script.started == std::vector<int64_t>({0, 1, 2, 3, 8, 9}));
  CHECK(answers == std::vector<int32_t>({PTO_STEP_PROGRESS, PTO_STEP_PROGRESS}));
}

TEST(each_published_task_wakes_one_hungry_scheduler) {
  Script script("aicpu_build_graph");
  for (int task = 0; task < 3; ++task) script.add_task(PTO_CORE_AIV);
  script.publish(0);
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.step(0), PTO_STEP_IDLE);
  CHECK_EQUAL(script.step(1), PTO_STEP_IDLE);
  script.publish(1);
  CHECK(script.woken == std::set<uint32_t>({0}));
  script.publish(2);
  CHECK(script.woken == std::set<uint32_t>({0, 1}));
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.step(1), PTO_STEP_PROGRESS);
  CHECK(script.started == std::vector<int64_t>({0, 1, 2}));
}

TEST(released_tasks_start_before_admitted_tasks) {
  Script script("host_build_graph");
  for (int task = 0; task < 9; ++task) script.add_task(PTO_CORE_AIC);
  for (int task = 0; task < 3; ++task) script.add_edge(task, task + 6);
  script.build_done();
  for (int task = 0; task < 9; ++task) {
    while (script.started.size() == static_cast<size_t>(task)) script.step(0);
    script.finish(script.started.back());
  }
  CHECK(std::set<int64_t>(script.started.begin(), script.started.end()).size() == 9);
  CHECK(script.started == std::vector<int64_t>({0, 6, 1, 7, 2, 8, 3, 4, 5}));
}

TEST(the_end_of_a_run_wakes_every_scheduler) {
  Script script("host_build_graph");
  script.add_task(PTO_CORE_AIC);
  script.build_done();
  CHECK_EQUAL(script.step(1), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.step(0), PTO_STEP_IDLE);
  script.finish(0);
  script.woken.clear();
  CHECK_EQUAL(script.step(1), PTO_STEP_DONE);
  CHECK(script.woken.count(0) == 1);
  CHECK_EQUAL(script.step(0), PTO_STEP_DONE);
}

TEST(each_core_type_has_its_own_queue) {
  Script script("host_build_graph");
  for (int task = 0; task < 8; ++task) script.add_task(PTO_CORE_AIC);
  script.add_task(PTO_CORE_AIV);
  script.build_done();
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK(script.started == std::vector<int64_t>({0, 8}));
}

TEST(checking_mode_refuses_a_wrong_pointer_at_submit) {
  Script script("host_build_graph");
  CHECK_EQUAL(script.add_task(PTO_CORE_AIC, 13), 0);
  script.check_values();
  CHECK_EQUAL(script.add_task(PTO_CORE_AIC, 14), 1);
  CHECK_EQUAL(script.add_task(PTO_CORE_AIC, 13), -1);
  CHECK_EQUAL(script.error().status, PTO_ERROR_ADDRESS);
  CHECK_EQUAL(script.error().task, 2);
  CHECK_CONTAINS(script.error().message, "task 2 (function 0), argument 0: 13 is not an address");
}

TEST(a_stall_is_reported_with_its_cause) {
  Script script("aicpu_build_graph");
  for (int task = 0; task < 4; ++task) script.add_task(PTO_CORE_AIC);
  script.add_edge(0, 1);
  script.add_edge(1, 2);
  script.add_edge(2, 3);
  script.add_edge(3, 1);
  for (int task = 0; task < 4; ++task) script.publish(task);
  script.build_done();
  CHECK_EQUAL(script.step(0), PTO_STEP_PROGRESS);
  CHECK_EQUAL(script.stalled(), PTO_STEP_ERROR);
  CHECK_EQUAL(script.step(0), PTO_STEP_ERROR);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
