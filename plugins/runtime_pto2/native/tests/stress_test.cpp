// The whole runtime with real scheduler threads. Random tasks access random regions of a few
// buffers and tensors from the heap, in nested scopes, with blocks and clusters. The rings and
// pools are so small that submits wait all the time. Every task runs once, after the writers (under
// full hazards also after the readers) of the bytes that it accesses.
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "pto/abi/dtype.h"
#include "threads_platform.hpp"

PTO_ABI_EXPORT const pto_runtime_api* pto_runtime_entry(const char* variant);

namespace {

int count_from_arguments = 20;
uint64_t seed_from_arguments = 1;

constexpr uint64_t kBuffers = 3;
constexpr uint64_t kBytes = 256;
// the bits of a cookie from this one on contain the index of the block_id argument plus one
constexpr uint64_t kBlockArgShift = 32;
constexpr uint32_t kMostBlocks = 3;
// maximum number of submits in a scope: with their blocks, they fit into a window of 16
constexpr uint32_t kMostSubmits = 4;

// For one byte: the tasks that a later access to it must follow.
struct Byte {
  int64_t writer = -1;
  std::vector<int64_t> readers;  // tasks that have read the byte since the last writer
};

class Program {
 public:
  Program(ThreadsPlatform& platform, uint64_t seed, size_t tasks)
      : api_(*pto_runtime_entry("tensormap_and_ringbuffer")),
        runtime_(platform.runtime()),
        is_full_(platform.hazards == PTO_HAZARDS_FULL),
        random_(seed),
        tasks_(tasks) {
    for (auto& buffer : buffers_) buffer.resize(kBytes);
  }

  static uint64_t span_of(const pto_payload& payload) {
    const uint64_t arg = payload.cookie >> kBlockArgShift;
    const uint64_t first = payload.cookie & ((uint64_t{1} << kBlockArgShift) - 1);
    return arg == 0 ? first : first + reinterpret_cast<const uint64_t*>(&payload + 1)[arg - 1];
  }

  int submit_all() {
    while (spans_ < tasks_ && !has_failed_) scope(1);
    return has_failed_ ? -1 : 0;
  }

  void check(const std::vector<ThreadsPlatform::Span>& spans) const {
    for (size_t i = 0; i < spans_; ++i) CHECK_EQUAL(spans[i].runs.load(), 1);
    for (const auto& [from, to] : orders_) {
      for (uint64_t a = 0; a < blocks_[from].second; ++a) {
        for (uint64_t b = 0; b < blocks_[to].second; ++b) {
          CHECK(spans[blocks_[from].first + a].end.load() <
                spans[blocks_[to].first + b].start.load());
        }
      }
    }
  }

  size_t spans() const { return spans_; }

 private:
  struct HeapTensor {
    pto_tensor_data data;
    Byte whole;
  };

  uint64_t below(uint64_t limit) { return random_() % limit; }

  void scope(uint32_t depth) {
    CHECK_EQUAL(api_.scope_begin(runtime_, nullptr, -1), PTO_OK);
    const size_t outer = heap_.size();
    const int32_t cluster = below(4) == 0 ? api_.allocate_cluster(runtime_, nullptr, -1) : -1;
    for (uint64_t i = 1 + below(kMostSubmits); i > 0 && !has_failed_; --i) {
      submit(below(2) == 0 ? cluster : -1);
      if (depth < 3 && below(3) == 0) scope(depth + 1);
    }
    if (cluster >= 0 && below(2) == 0) api_.free_cluster(runtime_, cluster);
    heap_.resize(outer);
    has_failed_ |= api_.scope_end(runtime_) != PTO_OK;
  }

  void submit(int32_t cluster) {
    pto_param params[8] = {};
    pto_tensor_data tensors[8] = {};
    std::vector<std::function<void()>> touches;
    const auto number = static_cast<int64_t>(blocks_.size());
    const uint32_t count = 1 + static_cast<uint32_t>(below(4));
    const bool makes_output = below(3) == 0;
    std::set<uint64_t> buffers;
    for (uint32_t i = 0; i < count; ++i) {
      params[i].tag = static_cast<uint32_t>(below(4));
      params[i].value.tensor = &tensors[i];
      if (!heap_.empty() && below(3) == 0) {
        name_heap(tensors[i], params[i].tag, number, touches);
      } else {
        name_region(tensors[i], params[i].tag, number, touches, buffers);
      }
    }
    pto_tensor_task task{};
    if (makes_output) add_output(params[count], tensors[count]);
    task.num_params = count + makes_output;
    task.params = params;
    task.func_id = static_cast<int32_t>(below(2));
    task.core_type = -1;
    task.block_dim = below(5) == 0 ? 1 + static_cast<uint32_t>(below(kMostBlocks)) : 0;
    task.cookie = spans_;
    if (task.block_dim > 0) task.cookie |= uint64_t{task.num_params + 2} << kBlockArgShift;
    const int32_t clusters[kMostBlocks] = {cluster, cluster, cluster};
    if (cluster >= 0) task.clusters = clusters;
    has_failed_ = api_.submit_tensors(runtime_, &task) < 0;
    if (has_failed_) return;
    const uint64_t blocks = task.block_dim > 0 ? task.block_dim : 1;
    blocks_.emplace_back(spans_, blocks);
    spans_ += blocks;
    for (const auto& touch : touches) touch();
    if (makes_output) heap_.push_back({tensors[count], {number, {}}});
  }

  static pto_tensor_data tensor(uint64_t bytes) {
    pto_tensor_data data{};
    data.buffer.size = data.raw_shapes[0] = data.shapes[0] = bytes;
    data.ndims = 1;
    data.dtype = PTO_DTYPE_UINT8;
    data.owner = -1;
    return data;
  }

  void add_output(pto_param& param, pto_tensor_data& data) {
    data = tensor(1 + below(2048));
    param.tag = PTO_TAG_OUTPUT;
    param.value.tensor = &data;
  }

  // Name a region of a buffer. If the task already uses the buffer, use other memory instead:
  // conflicts within a task are tested elsewhere.
  void name_region(pto_tensor_data& data, uint32_t tag, int64_t task,
                   std::vector<std::function<void()>>& touches, std::set<uint64_t>& buffers) {
    const uint64_t index = below(kBuffers);
    const uint64_t begin = below(kBytes);
    const uint64_t length = 1 + below(kBytes - begin);
    const bool is_first = buffers.insert(index).second;
    data = tensor(kBytes);
    data.buffer.addr = 0x100000 + 0x10000 * index + (is_first ? 0 : 0x1000000 * ++others_);
    data.shapes[0] = length;
    data.offsets[0] = data.start_offset = begin;
    if (!is_first) return;
    touches.push_back([=, this] {
      for (uint64_t i = begin; i < begin + length; ++i) touch(buffers_[index][i], tag, task);
    });
  }

  void name_heap(pto_tensor_data& data, uint32_t tag, int64_t task,
                 std::vector<std::function<void()>>& touches) {
    const size_t index = below(heap_.size());
    data = heap_[index].data;
    touches.push_back([=, this] { touch(heap_[index].whole, tag, task); });
  }

  void touch(Byte& byte, uint32_t tag, int64_t task) {
    const bool reads = tag == PTO_TAG_INPUT || tag == PTO_TAG_INOUT;
    const bool waits = reads || (is_full_ && tag == PTO_TAG_OUTPUT);
    if (waits) follow(byte.writer, task);
    if (is_full_ && (tag == PTO_TAG_INOUT || tag == PTO_TAG_OUTPUT)) {
      for (const int64_t reader : byte.readers) follow(reader, task);
    }
    if (tag == PTO_TAG_INPUT) {
      byte.readers.push_back(task);
    } else {
      byte.writer = task;
      byte.readers.clear();
    }
  }

  void follow(int64_t from, int64_t to) {
    if (from >= 0 && from != to) orders_.insert({from, to});
  }

  const pto_runtime_api& api_;
  void* runtime_;
  const bool is_full_;
  std::mt19937_64 random_;
  const size_t tasks_;
  std::vector<Byte> buffers_[kBuffers];
  std::vector<HeapTensor> heap_;  // heap tensors of the open scopes
  // for each submit: its first span and its number of spans
  std::vector<std::pair<uint64_t, uint64_t>> blocks_;
  // pairs of submits: the first one must end before the second one starts
  std::set<std::pair<int64_t, int64_t>> orders_;
  uint64_t others_ = 0;
  size_t spans_ = 0;
  bool has_failed_ = false;
};

// Asks the runtime for texts about the run, repeatedly and from another thread.
class Observer {
 public:
  explicit Observer(ThreadsPlatform& platform) : runtime_(platform.runtime()) {}

  void start() {
    thread_ = std::thread([this] {
      const pto_runtime_api& api = *pto_runtime_entry("tensormap_and_ringbuffer");
      char text[2048];
      while (!is_over_.load(std::memory_order_relaxed)) {
        CHECK(api.explain(runtime_, text, sizeof text) > 0);
        api.attend(runtime_);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void stop() {
    is_over_.store(true, std::memory_order_relaxed);
    thread_.join();
  }

 private:
  void* runtime_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

void stress(uint32_t blocks, uint32_t schedulers, size_t tasks, uint32_t hazards) {
  const std::vector<pto_option> options{{"task_window", "16"},
                                        {"heap", "32768"},
                                        {"dep_pool", "128"},
                                        {"tensor_map_pool", "1024"},
                                        {"ready_queue_shards", "2"}};
  for (int round = 0; round < count_from_arguments; ++round) {
    const uint64_t seed = seed_from_arguments + static_cast<uint64_t>(round);
    std::printf("  seed %llu blocks %u schedulers %u %s\n", static_cast<unsigned long long>(seed),
                blocks, schedulers, hazards == PTO_HAZARDS_FULL ? "full" : "raw");
    ThreadsPlatform platform(*pto_runtime_entry("tensormap_and_ringbuffer"), blocks, schedulers,
                             seed, options);
    platform.hazards = hazards;
    platform.span_of = Program::span_of;
    for (uint64_t run = 0; run < 2; ++run) {
      Program program(platform, 2 * seed + run, tasks);
      std::vector<ThreadsPlatform::Span> spans(2 * tasks + 1000);
      Observer observer(platform);
      platform.run(spans, [&] {
        observer.start();
        return program.submit_all();
      });
      observer.stop();
      if (platform.error().status != PTO_OK) {
        check::fail(__FILE__, __LINE__, platform.error().message);
      }
      CHECK_EQUAL(platform.stalls(), 0);
      CHECK(program.spans() < spans.size());
      program.check(spans);
      platform.end();
    }
  }
}

// An orchestration that computes after some submits: meanwhile, all published tasks run, which are
// all but the newest one.
TEST(only_the_newest_task_waits_for_the_next_call) {
  const pto_runtime_api& api = *pto_runtime_entry("tensormap_and_ringbuffer");
  for (uint32_t schedulers = 1; schedulers <= 3; ++schedulers) {
    ThreadsPlatform platform(api, 6, schedulers, seed_from_arguments);
    std::vector<ThreadsPlatform::Span> spans(2000);
    platform.run(spans, [&] {
      uint64_t submits = 0;
      for (uint64_t round = 0; round < 200; ++round) {
        for (uint64_t i = 0; i < 2 + round % 8; ++i) {
          pto_tensor_task task{};
          task.func_id = 1;
          task.core_type = -1;
          task.cookie = submits++;
          CHECK(api.submit_tensors(platform.runtime(), &task) >= 0);
        }
        for (uint64_t task = 0; task + 1 < submits; ++task) CHECK(platform.wait_for(task));
      }
      return 0;
    });
    CHECK_EQUAL(platform.stalls(), 0);
  }
}

TEST(raw_with_one_scheduler) {
  stress(4, 1, 500, PTO_HAZARDS_RAW);
}
TEST(raw_with_two_schedulers) {
  stress(24, 2, 800, PTO_HAZARDS_RAW);
}
TEST(raw_with_three_schedulers) {
  stress(6, 3, 800, PTO_HAZARDS_RAW);
}
TEST(full_with_one_scheduler) {
  stress(4, 1, 500, PTO_HAZARDS_FULL);
}
TEST(full_with_three_schedulers) {
  stress(6, 3, 800, PTO_HAZARDS_FULL);
}

}  // namespace

// Arguments: test name or "all", number of rounds, first seed.
int main(int argc, char** argv) {
  if (argc > 2) count_from_arguments = std::atoi(argv[2]);
  if (argc > 3) seed_from_arguments = std::strtoull(argv[3], nullptr, 10);
  const bool is_all = argc < 2 || std::string(argv[1]) == "all";
  return check::run_all(is_all ? 1 : 2, argv);
}
