// A platform with threads. Each scheduler steps on its own thread and parks when it is idle, so a
// lost wake-up or a lost edge shows as a run in which all schedulers are parked.
//
// Cores are simulated: a dispatched task starts at once, and ends when a random poll reports it. A
// test identifies a task by its span.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pto/abi/runtime.h"

class ThreadsPlatform {
 public:
  // The start and end of a task, in ticks of one clock for all threads; 0 if it did not start or
  // end.
  struct Span {
    std::atomic<uint64_t> start{0};
    std::atomic<uint64_t> end{0};
    std::atomic<int> runs{0};
  };

  ThreadsPlatform(const pto_runtime_api& api, uint32_t blocks, uint32_t schedulers, uint64_t seed,
                  const std::vector<pto_option>& options = {})
      : api_(api), lanes_(schedulers) {
    topology_.blocks = blocks;
    topology_.cores = 3 * blocks;
    topology_.schedulers = schedulers;
    for (uint32_t core = 0; core < topology_.cores; ++core) {
      const uint32_t cluster = core < blocks ? core : (core - blocks) / 2;
      topology_.core_type[core] = core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
      topology_.thread_cores[cluster % schedulers].words[core / 64] |= uint64_t{1} << (core % 64);
    }
    for (Lane& lane : lanes_) lane.random.seed(++seed);
    fill_table();
    pto_error error;
    CHECK_EQUAL(api_.create(&table_, options.data(), static_cast<uint32_t>(options.size()),
                            &runtime_, &error),
                PTO_OK);
  }

  ~ThreadsPlatform() { api_.destroy(runtime_); }

  // Runs one graph. `build` submits it, while the schedulers run if the variant allows that.
  template <class Build>
  void run(std::vector<Span>& spans, Build build) {
    spans_ = &spans;
    clock_.store(1);
    stalls_.store(0);
    parked_ = 0;
    for (Lane& lane : lanes_) lane.begin();
    const pto_kernel_entry kernels[] = {{0, PTO_CORE_AIC, 1, "aic", nullptr},
                                        {1, PTO_CORE_AIV, 2, "aiv", nullptr}};
    const pto_call_config config{};
    pto_run run{};
    run.kernels = kernels;
    run.num_kernels = 2;
    run.config = &config;
    run.hazards = hazards;
    CHECK_EQUAL(api_.begin(runtime_, &run), PTO_OK);
    const bool is_concurrent = (api_.capabilities & PTO_RUNTIME_CONCURRENT_BUILD) != 0;
    is_build_done_ = false;
    if (!is_concurrent) finish_build(build());
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < lanes_.size(); ++thread) {
      threads.emplace_back([this, thread] { schedule(thread); });
    }
    if (is_concurrent) finish_build(build());
    for (std::thread& thread : threads) thread.join();
  }

  void end() { api_.end(runtime_); }

  // Called by the thread of its scheduler for each task that starts.
  std::function<void(const pto_dispatch&)> on_start = [](const pto_dispatch&) {};
  // Returns the index of the span of a task; by default, this is the task's cookie.
  std::function<uint64_t(const pto_payload&)> span_of = [](const pto_payload& payload) {
    return payload.cookie;
  };
  uint32_t hazards = PTO_HAZARDS_RAW;

  const pto_topology& topology() const { return topology_; }
  const pto_platform& table() const { return table_; }

  // Called by the orchestrator: block until `task`, whose producers have completed, has run. Return
  // false if it never will, because every scheduler is parked.
  bool wait_for(uint64_t task) {
    std::unique_lock<std::mutex> lock(mutex_);
    awaited_ = task;
    changed_.notify_all();
    changed_.wait(lock, [&] { return has_run(task) || stalls_.load() > 0; });
    awaited_ = kNothing;
    return has_run(task);
  }

  void* runtime() const { return runtime_; }
  int stalls() const { return stalls_.load(); }
  // Return how often the orchestrator had to wait for free space.
  uint64_t waits() const { return waits_.load(); }
  pto_error error() const {
    pto_error last{};
    api_.last_error(runtime_, &last);
    return last;
  }

 private:
  struct Lane {
    void begin() {
      is_awake = true;
      running.clear();
    }

    std::mt19937_64 random;
    std::vector<std::pair<uint32_t, uint64_t>> running;  // core and task
    bool is_awake = true;
  };

  static constexpr uint64_t kNothing = ~uint64_t{0};

  bool has_run(uint64_t task) const { return (*spans_)[task].end.load() != 0; }

  static ThreadsPlatform& self(void* platform) { return *static_cast<ThreadsPlatform*>(platform); }

  void finish_build(int result) {
    api_.orchestration_done(runtime_, result);
    const std::lock_guard<std::mutex> lock(mutex_);
    is_build_done_ = true;
    changed_.notify_all();
  }

  void schedule(uint32_t thread) {
    for (;;) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        lanes_[thread].is_awake = false;
      }
      const int32_t step = api_.schedule_step(runtime_, thread);
      if (step == PTO_STEP_DONE || step == PTO_STEP_ERROR) return leave();
      if (step == PTO_STEP_IDLE && lanes_[thread].running.empty() && !park(thread)) return leave();
      if (step == PTO_STEP_IDLE) std::this_thread::yield();
    }
  }

  // A finished scheduler counts as parked: it does not prevent the proof that all others are stuck.
  void leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++parked_;
    changed_.notify_all();
  }

  // Return false if every scheduler is parked and the orchestrator will not change that: the run is
  // stuck.
  bool park(uint32_t thread) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++parked_;
    changed_.notify_all();
    for (;;) {
      if (lanes_[thread].is_awake) {
        --parked_;
        return true;
      }
      const bool is_awaited = awaited_ != kNothing && !has_run(awaited_);
      if ((is_build_done_ || is_awaited || is_waiting()) && parked_ == lanes_.size() &&
          !is_any_awake()) {
        stalls_.fetch_add(1);
        changed_.notify_all();
        return false;
      }
      changed_.wait(lock);
    }
  }

  bool is_any_awake() const {
    for (const Lane& lane : lanes_) {
      if (lane.is_awake) return true;
    }
    return false;
  }

  void fill_table() {
    table_.abi_version = PTO_ABI_VERSION;
    table_.struct_size = sizeof table_;
    table_.self = this;
    table_.topology = &topology_;
    table_.reserve = [](void*, size_t bytes) {
      return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    };
    table_.release = [](void*, void* memory, size_t bytes) { munmap(memory, bytes); };
    table_.dispatch = [](void* raw, uint32_t thread, const pto_dispatch* batch, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i) self(raw).start_task(thread, batch[i]);
    };
    table_.poll = [](void* raw, uint32_t thread, pto_poll_result* result) {
      self(raw).poll(thread, result);
    };
    table_.wake = [](void* raw, uint32_t thread) {
      const std::lock_guard<std::mutex> lock(self(raw).mutex_);
      self(raw).lanes_[thread].is_awake = true;
      self(raw).changed_.notify_all();
    };
    table_.log = [](void*, int32_t, const char*) {};
    table_.wait = [](void* raw, const uint32_t* word, uint32_t expected) {
      return self(raw).wait(word, expected);
    };
    table_.notify = [](void* raw, const uint32_t*) {
      const std::lock_guard<std::mutex> lock(self(raw).mutex_);
      self(raw).changed_.notify_all();
    };
    fill_memory();
  }

  void fill_memory() {
    table_.touched = [](void*, const void*, size_t) { return size_t{0}; };
    table_.allocate_ring = [](void*, size_t bytes, uint64_t* address) {
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      *address = reinterpret_cast<uint64_t>(memory);
      return pto_status{memory == MAP_FAILED ? PTO_ERROR_MEMORY : PTO_OK};
    };
    table_.free = [](void*, uint64_t) { return pto_status{PTO_OK}; };
    table_.now = [](void*) {
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
    };
  }

  // Called by the orchestrator: waits until the word changes. Fails if all schedulers are parked
  // before: the run is stuck.
  pto_status wait(const uint32_t* word, uint32_t expected) {
    std::unique_lock<std::mutex> lock(mutex_);
    waits_.fetch_add(1);
    word_ = word;
    expected_ = expected;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !is_waiting() || stalls_.load() > 0; });
    const bool has_changed = !is_waiting();
    word_ = nullptr;
    return has_changed ? PTO_OK : PTO_ERROR_ABORTED;
  }

  // Return whether the orchestrator waits for the change of a word that has not changed.
  bool is_waiting() const {
    return word_ != nullptr && __atomic_load_n(word_, __ATOMIC_SEQ_CST) == expected_;
  }

  void start_task(uint32_t thread, const pto_dispatch& item) {
    const uint64_t task = span_of(*item.payload);
    const uint32_t type = static_cast<uint32_t>(item.payload->func_id);
    CHECK_EQUAL(uint32_t{topology_.core_type[item.core]}, type);
    on_start(item);
    Span& span = (*spans_)[task];
    span.start.store(clock_.fetch_add(1));
    span.runs.fetch_add(1);
    for (const auto& [core, other] : lanes_[thread].running) CHECK(core != item.core);
    lanes_[thread].running.emplace_back(item.core, task);
  }

  void poll(uint32_t thread, pto_poll_result* result) {
    Lane& lane = lanes_[thread];
    *result = {};
    for (size_t i = 0; i < lane.running.size();) {
      if (lane.random() % 3 == 0) {
        ++i;
        continue;
      }
      const auto [core, task] = lane.running[i];
      (*spans_)[task].end.store(clock_.fetch_add(1));
      result->done.words[core / 64] |= uint64_t{1} << (core % 64);
      lane.running[i] = lane.running.back();
      lane.running.pop_back();
      if (awaited_.load() == task) {
        const std::lock_guard<std::mutex> lock(mutex_);
        changed_.notify_all();
      }
    }
  }

  const pto_runtime_api& api_;
  pto_topology topology_{};
  pto_platform table_{};
  void* runtime_ = nullptr;
  std::vector<Lane> lanes_;
  std::vector<Span>* spans_ = nullptr;
  std::atomic<uint64_t> clock_{1};
  std::atomic<int> stalls_{0};
  std::atomic<uint64_t> awaited_{kNothing};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t parked_ = 0;
  bool is_build_done_ = false;
  const uint32_t* word_ = nullptr;  // the word on which the orchestrator waits in wait()
  uint32_t expected_ = 0;
  std::atomic<uint64_t> waits_{0};
};
