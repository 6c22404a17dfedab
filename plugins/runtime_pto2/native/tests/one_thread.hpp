// A platform with one thread, and the runtime on it. Kernels run inside dispatch(). When the
// orchestrator waits, the platform steps the schedulers until the wait ends or no scheduler can
// continue.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pto/abi/dtype.h"
#include "pto/abi/runtime.h"

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant);

constexpr uint64_t kKiB = 1024;

class OneThread {
 public:
  using Kernel = std::function<void(const pto_payload& payload)>;
  using Options = std::vector<std::pair<std::string, std::string>>;

  static constexpr uint64_t kAll = ~uint64_t{0};

  // Memory is exhausted after `reservations` calls of reserve(), until grant() allows more calls.
  OneThread(uint32_t blocks, const Options& options, uint64_t reservations = kAll)
      : api_(pto_runtime_entry("tensormap_and_ringbuffer")), granted_(reservations) {
    fill_topology(blocks);
    fill_platform();
    std::vector<pto_option> plain;
    for (const auto& [key, value] : options) plain.push_back({key.c_str(), value.c_str()});
    status_ = api_->create(&platform_, plain.data(), static_cast<uint32_t>(plain.size()), &runtime_,
                           &error_);
  }

  ~OneThread() {
    if (status_ == PTO_OK) api_->destroy(runtime_);
    if (reserved_bytes_ != 0) check::fail(__FILE__, __LINE__, "reserved memory was not released");
  }

  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  // From now on, the platform does not permit the runtime to plan.
  void forbid_planning() { platform_.planning = 0; }
  // Return the status of create().
  pto_status status() const { return status_; }
  void grant(uint64_t reservations) { granted_ = reservations; }
  size_t reserved_bytes() const { return reserved_bytes_; }

  // Runs the submits of `build`; returns the status of the run and stores its error.
  template <class Build>
  pto_status run(Build build, uint32_t hazards = PTO_HAZARDS_RAW) {
    log_.clear();
    edges_.clear();
    was_proven_ = false;
    static Kernel nothing = [](const pto_payload&) {};
    kernel_entry_ = {0, -1, reinterpret_cast<uint64_t>(kernel ? &kernel : &nothing), "kernel",
                     nullptr};
    pto_run run{};
    pto_call_config config{};
    run.kernels = &kernel_entry_;
    run.num_kernels = 1;
    run.hazards = hazards;
    run.config = &config;
    CHECK_EQUAL(api_->begin(runtime_, &run), PTO_OK);
    build();
    api_->orchestration_done(runtime_, result);
    while (!was_proven_ && step() != PTO_STEP_DONE && !is_failed_) {
    }
    const pto_status status = api_->finalise(runtime_);
    error_ = {};
    api_->last_error(runtime_, &error_);
    read_statistics();
    api_->end(runtime_);
    is_failed_ = false;
    finished_ = {};
    return error_.status != PTO_OK ? error_.status : status;
  }

  uint64_t statistic(const std::string& name) const {
    const auto found = statistics_.find(name);
    if (found == statistics_.end()) check::fail(__FILE__, __LINE__, "no statistic " + name);
    return found->second;
  }

  std::string explain() const {
    char text[4096];
    const size_t length = api_->explain(runtime_, text, sizeof text);
    CHECK_EQUAL(length, std::strlen(text));
    return text;
  }

  const pto_runtime_api& api() const { return *api_; }
  void* runtime() const { return runtime_; }
  const pto_error& error() const { return error_; }
  const std::vector<std::string>& log() const { return log_; }
  // The edges of the last run, as pairs of task ids: the first task had to complete before the
  // second one started.
  const std::set<std::pair<int64_t, int64_t>>& edges() const { return edges_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::map<std::string, uint64_t>& statistics() const { return statistics_; }

  // If set, signals do not end a wait: it ends only when the run stalls.
  bool loses_signals = false;
  // By how much each reading of the clock advances the clock.
  uint64_t clock_step_ns = 1000;

  int32_t result = 0;  // return value of the orchestration

  // The body of function 0 on both core types. By default it does nothing.
  Kernel kernel;

 private:
  static OneThread& self(void* raw) { return *static_cast<OneThread*>(raw); }

  void fill_topology(uint32_t blocks) {
    topology_ = {};
    topology_.blocks = blocks;
    topology_.cores = 3 * blocks;
    topology_.schedulers = 1;
    for (uint32_t core = 0; core < topology_.cores; ++core) {
      topology_.thread_cores[0].words[core / 64] |= uint64_t{1} << core % 64;
      topology_.core_type[core] = core < blocks ? PTO_CORE_AIC : PTO_CORE_AIV;
    }
  }

  void fill_platform() {
    platform_ = {};
    platform_.abi_version = PTO_ABI_VERSION;
    platform_.struct_size = sizeof platform_;
    platform_.self = this;
    platform_.topology = &topology_;
    platform_.planning = 1;
    platform_.reserve = [](void* raw, size_t bytes) -> void* {
      if (self(raw).granted_ == 0) return nullptr;
      if (self(raw).granted_ != kAll) --self(raw).granted_;
      void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) return nullptr;
      self(raw).reserved_bytes_ += bytes;
      return memory;
    };
    platform_.release = [](void* raw, void* memory, size_t bytes) {
      munmap(memory, bytes);
      self(raw).reserved_bytes_ -= bytes;
    };
    platform_.touched = [](void*, const void* memory, size_t bytes) {
      return touched(memory, bytes);
    };
    platform_.allocate_ring = [](void* raw, size_t bytes, uint64_t* address) -> pto_status {
      if (self(raw).granted_ == 0) return PTO_ERROR_MEMORY;
      *address = reinterpret_cast<uint64_t>(std::aligned_alloc(1024, bytes));
      return PTO_OK;
    };
    platform_.allocate = platform_.allocate_ring;
    platform_.free = [](void*, uint64_t address) -> pto_status {
      std::free(reinterpret_cast<void*>(address));
      return PTO_OK;
    };
    platform_.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t count) {
      for (uint32_t index = 0; index < count; ++index) self(raw).execute(batch[index]);
    };
    platform_.poll = [](void* raw, uint32_t, pto_poll_result* result) {
      *result = std::exchange(self(raw).finished_, {});
    };
    platform_.wake = [](void*, uint32_t) {};
    platform_.notify = [](void*, const uint32_t*) {};
    platform_.wait = [](void* raw, const uint32_t* word, uint32_t expected) {
      return self(raw).wait(word, expected);
    };
    platform_.now = [](void* raw) { return self(raw).now_ns_ += self(raw).clock_step_ns; };
    platform_.tracing = PTO_TRACE_ORDER;
    platform_.order = [](void* raw, uint32_t event, uint64_t from, uint64_t to) {
      if (event != PTO_TRACE_EDGE) return;
      self(raw).edges_.insert({static_cast<int64_t>(from), static_cast<int64_t>(to)});
    };
    platform_.log = [](void* raw, int32_t level, const char* message) {
      if (level == PTO_LOG_ERROR) self(raw).log_.push_back(message);
      if (level == PTO_LOG_WARN) self(raw).warnings_.push_back(message);
    };
  }

  static size_t touched(const void* memory, size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    CHECK_EQUAL(mincore(const_cast<void*>(memory), bytes, resident.data()), 0);
    size_t pages = 0;
    for (const unsigned char entry : resident) pages += entry & 1;
    return pages * page;
  }

  void execute(const pto_dispatch& item) {
    alignas(8) char copy[PTO_MAX_PAYLOAD];
    std::memcpy(copy, item.payload, item.length);
    auto* payload = reinterpret_cast<pto_payload*>(copy);
    uint64_t* args = pto_payload_args(payload);
    for (uint32_t index = 0; index < payload->num_args; ++index) {
      if (payload->relative_args >> index & 1) args[index] += reinterpret_cast<uint64_t>(payload);
    }
    (*reinterpret_cast<Kernel*>(payload->kernel))(*payload);
    finished_.done.words[item.core / 64] |= uint64_t{1} << item.core % 64;
  }

  int32_t step() {
    int32_t answer = api_->schedule_step(runtime_, 0);
    const bool is_quiet = (finished_.done.words[0] | finished_.done.words[1]) == 0;
    if (answer == PTO_STEP_IDLE && is_quiet) answer = api_->stalled(runtime_);
    is_failed_ = answer == PTO_STEP_ERROR;
    return answer;
  }

  void lose_signals(const uint32_t* word, uint32_t expected) {
    while (api_->schedule_step(runtime_, 0) == PTO_STEP_PROGRESS) {
    }
    __atomic_store_n(const_cast<uint32_t*>(word), expected, __ATOMIC_RELEASE);
  }

  pto_status wait(const uint32_t* word, uint32_t expected) {
    if (loses_signals) lose_signals(word, expected);
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == expected) {
      if (step() != PTO_STEP_ERROR) continue;
      was_proven_ = api_->last_error(runtime_, nullptr) == PTO_ERROR_DEADLOCK;
      return was_proven_ ? PTO_ERROR_DEADLOCK : PTO_ERROR_ABORTED;
    }
    return PTO_OK;
  }

  void read_statistics() {
    pto_statistic entries[128];
    const uint32_t count = api_->statistics(runtime_, entries, 128);
    CHECK(count <= 128);
    statistics_.clear();
    for (uint32_t index = 0; index < count; ++index) {
      statistics_[entries[index].name] = entries[index].value;
    }
    CHECK_EQUAL(statistics_.size(), count);
  }

  const pto_runtime_api* api_;
  void* runtime_ = nullptr;
  pto_status status_ = PTO_OK;
  pto_error error_{};
  pto_platform platform_{};
  pto_topology topology_{};
  pto_kernel_entry kernel_entry_{};
  pto_poll_result finished_{};
  size_t reserved_bytes_ = 0;
  uint64_t granted_;  // number of reservations that still succeed
  bool was_proven_ = false;
  bool is_failed_ = false;
  uint64_t now_ns_ = 0;
  std::vector<std::string> log_;       // number of errors
  std::vector<std::string> warnings_;  // over all runs
  std::set<std::pair<int64_t, int64_t>> edges_;
  std::map<std::string, uint64_t> statistics_;
};
