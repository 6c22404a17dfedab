// Real scheduler threads and a submitting thread, with small windows in all rings, edges to
// producers that complete at the same moment, holds, blocks and clusters. Every task runs once,
// after its producers. Blocks that must start at the same time do. No held slot retires. All tasks
// retire at the end. No scheduler sleeps while there is work.
#include <random>
#include <string>

#include "feeder.hpp"
#include "threads_platform.hpp"

namespace {

int count_from_arguments = 40;
uint64_t seed_from_arguments = 1;

struct Task {
  int64_t id;
  uint64_t cookie;  // the number of its first block
  uint32_t blocks;
  bool is_cohort;
};

// One random program, with the edges that its run must respect.
class Program {
 public:
  Program(Feeder& feeder, uint64_t seed, uint32_t window, size_t most_tasks)
      : feeder_(feeder), random_(seed), window_(window), most_tasks_(most_tasks) {
    held_.resize(most_tasks + window);
  }

  int submit_all() {
    const size_t count = 1 + random_() % most_tasks_;
    while (cookies_ < count) {
      if (!submit_one()) return -1;
      maybe_end_scopes();
    }
    for (int32_t cluster : clusters_) feeder_.clusters().free(cluster);
    return 0;
  }

  // Checks that the slots that a task holds have not retired. Called by scheduler threads when the
  // task starts.
  void check_holds(const pto_payload& payload) const {
    for (const int64_t id : held_[payload.cookie]) {
      CHECK(feeder_.alive(TaskId::of(id).ring) <= TaskId::of(id).number);
    }
  }

  void check(const std::vector<ThreadsPlatform::Span>& spans) const {
    for (size_t cookie = 0; cookie < cookies_; ++cookie) CHECK_EQUAL(spans[cookie].runs.load(), 1);
    for (const auto& [from, to] : edges_) {
      for (uint64_t a = from.cookie; a < from.cookie + from.blocks; ++a) {
        for (uint64_t b = to.cookie; b < to.cookie + to.blocks; ++b) {
          CHECK(spans[a].end.load() < spans[b].start.load());
        }
      }
    }
    for (const Task& task : tasks_) {
      for (uint64_t i = 0; i < task.blocks && task.is_cohort; ++i) {
        const uint64_t start = spans[task.cookie + i].start.load();
        for (uint64_t j = 0; j < task.blocks; ++j) {
          CHECK(start < spans[task.cookie + j].end.load());
        }
      }
    }
    const LaneStatistics statistics = feeder_.statistics();
    CHECK_EQUAL(statistics.dispatches, cookies_);
    CHECK_EQUAL(statistics.retired, cookies_);
    CHECK_EQUAL(statistics.wired, tasks_.size());
    for (uint32_t ring = 0; ring < kRings; ++ring) {
      CHECK_EQUAL(feeder_.alive(ring), feeder_.rings().ring[ring].next);
    }
    CHECK_EQUAL(feeder_.clusters().taken(), 0u);
  }

  size_t cookies() const { return cookies_; }

 private:
  uint32_t below(uint64_t limit) { return static_cast<uint32_t>(random_() % limit); }

  bool submit_one() {
    Feeder::Submit submit;
    submit.cookie = cookies_;
    submit.type = below(2);
    submit.ring = below(8) == 0 ? below(kRings) : ring_;
    if (below(6) == 0) submit.blocks = 1 + below(window_ < 8 ? window_ - 1 : 7);
    if (!choose_cluster(submit)) return false;
    if (submit.cluster < 0 && below(6) == 0) choose_cohort(submit);
    const uint32_t blocks = submit.blocks > 0 ? submit.blocks : 1;
    end_scopes_if_full(submit.ring, blocks);
    const uint32_t fan_in = below(4) == 0 ? below(24) : below(4);
    std::vector<Task> producers;
    for (uint32_t i = 0; i < fan_in && !tasks_.empty(); ++i) choose_producer(submit, producers);
    const int64_t id = feeder_.submit(submit);
    if (id < 0) return false;
    tasks_.push_back({id, submit.cookie, blocks, submit.is_cohort});
    for (const Task& from : producers) edges_.emplace_back(from, tasks_.back());
    cookies_ += blocks;
    if (below(32) == 0) ring_ = below(kRings);
    return true;
  }

  // Choose a producer among the newest tasks, each at most once. An edge may hold its producer only
  // if the scope of the producer is open.
  void choose_producer(Feeder::Submit& submit, std::vector<Task>& producers) {
    const Task& from = tasks_[tasks_.size() - 1 - below(tasks_.size() < 40 ? tasks_.size() : 40)];
    for (const auto& [id, kind] : submit.producers) {
      if (id == from.id) return;
    }
    const TaskId id = TaskId::of(from.id);
    const bool is_open = id.number >= feeder_.rings().ring[id.ring].scope_released.load();
    uint32_t kind = is_open ? 1 + below(3) : uint32_t{kOrders};
    submit.producers.emplace_back(from.id, kind);
    if ((kind & kHolds) != 0) held_[submit.cookie].push_back(from.id);
    if ((kind & kOrders) != 0) producers.push_back(from);
  }

  // End the scopes of the ring if its window is full: a submit would otherwise wait for ever.
  void end_scopes_if_full(uint32_t index, uint32_t blocks) {
    const TaskRing& ring = feeder_.rings().ring[index];
    if (ring.next + blocks >= feeder_.alive(index) + window_) feeder_.release(index, ring.next);
  }

  void maybe_end_scopes() {
    if (below(6) != 0) return;
    const uint32_t index = below(kRings);
    const TaskRing& ring = feeder_.rings().ring[index];
    const int64_t ended = ring.scope_released.load();
    const uint64_t open = static_cast<uint64_t>(ring.next - ended);
    if (open > 0) feeder_.release(index, ended + 1 + below(open));
  }

  // Choose a number of blocks that must start at the same time: often as many as there are cores.
  void choose_cohort(Feeder::Submit& submit) {
    const uint32_t cores = feeder_.clusters().blocks() * (submit.type == PTO_CORE_AIC ? 1 : 2);
    const uint32_t most = cores < window_ - 1 ? cores : window_ - 1;
    submit.blocks = below(2) == 0 ? most : 1 + below(most);
    submit.is_cohort = true;
  }

  bool choose_cluster(Feeder::Submit& submit) {
    Clusters& clusters = feeder_.clusters();
    if (clusters_.size() > 1 || (!clusters_.empty() && below(8) == 0)) {
      clusters.free(clusters_.front());
      clusters_.erase(clusters_.begin());
    }
    if (below(8) == 0 && clusters_.empty()) {
      if (!feeder_.wait_until([&] { return clusters.is_any_free(); })) return false;
      clusters_.push_back(clusters.allocate(0));
    }
    if (!clusters_.empty() && below(2) == 0) submit.cluster = clusters_.back();
    return true;
  }

  Feeder& feeder_;
  std::mt19937_64 random_;
  const uint32_t window_;
  const size_t most_tasks_;
  std::vector<Task> tasks_;
  std::vector<std::pair<Task, Task>> edges_;
  // ids of the tasks that a task holds, by the cookie of its first block
  std::vector<std::vector<int64_t>> held_;
  std::vector<int32_t> clusters_;
  size_t cookies_ = 0;
  uint32_t ring_ = 0;
};

void run_once(ThreadsPlatform& platform, uint64_t seed, uint32_t window, size_t most_tasks) {
  Feeder& feeder = *static_cast<Feeder*>(platform.runtime());
  Program program(feeder, seed, window, most_tasks);
  std::vector<ThreadsPlatform::Span> spans(most_tasks + window);
  platform.on_start = [&](const pto_dispatch& item) { program.check_holds(*item.payload); };
  platform.span_of = [](const pto_payload& payload) {
    return payload.cookie + reinterpret_cast<const uint64_t*>(&payload + 1)[1];
  };
  platform.run(spans, [&] { return program.submit_all(); });
  if (platform.error().status != PTO_OK) {
    check::fail(__FILE__, __LINE__, platform.error().message);
  }
  CHECK_EQUAL(platform.stalls(), 0);
  program.check(spans);
  platform.end();
}

void stress(uint32_t blocks, uint32_t schedulers, Feeder::Shape shape, size_t most_tasks) {
  const pto_runtime_api& api = Feeder::table(shape);
  for (int round = 0; round < count_from_arguments; ++round) {
    const uint64_t seed = seed_from_arguments + static_cast<uint64_t>(round);
    std::printf("  seed %llu blocks %u schedulers %u window %u shards %u\n",
                static_cast<unsigned long long>(seed), blocks, schedulers, shape.window,
                shape.shards);
    ThreadsPlatform platform(api, blocks, schedulers, seed);
    for (uint64_t run = 0; run < 2; ++run) {
      run_once(platform, 2 * seed + run, shape.window, most_tasks);
    }
  }
}

// A test of wake-ups: a scheduler sleeps as soon as it has reported idle, and a submit happens at
// any moment around that. Only the submit can wake it. So a scheduler that sleeps while its stream
// contains work has lost a wake-up.
class Sleeper {
 public:
  explicit Sleeper(uint64_t seed) : random_(seed) {
    topology_.blocks = 1;
    topology_.cores = 3;
    topology_.schedulers = 1;
    topology_.core_type[1] = topology_.core_type[2] = PTO_CORE_AIV;
    topology_.thread_cores[0].words[0] = 7;
    table_.self = this;
    table_.topology = &topology_;
    table_.reserve = [](void*, size_t bytes) { return std::calloc(bytes, 1); };
    table_.release = [](void*, void* memory, size_t) { std::free(memory); };
    table_.dispatch = [](void* raw, uint32_t, const pto_dispatch* batch, uint32_t) {
      static_cast<Sleeper*>(raw)->finished_ |= uint64_t{1} << batch->core;
    };
    table_.poll = [](void* raw, uint32_t, pto_poll_result* result) {
      *result = {{{static_cast<Sleeper*>(raw)->finished_, 0}}, {}};
      static_cast<Sleeper*>(raw)->finished_ = 0;
    };
    table_.wake = [](void* raw, uint32_t) { static_cast<Sleeper*>(raw)->is_awake_ = true; };
    feeder_.reset(new Feeder(&table_, {4, 1}));
  }

  void run(int submits) {
    feeder_->begin();
    feeder_->release(0, int64_t{1} << 40);
    std::thread scheduler([this] { schedule(); });
    for (int submit = 1; submit <= submits; ++submit) {
      for (uint64_t rest = random_() % 256; rest > 0; --rest) sleep_.load();
      feeder_->submit({});
      while (feeder_->alive(0u) < submit) {
        CHECK(!sleeps_for_good() || feeder_->alive(0u) == submit);
        std::this_thread::yield();
      }
    }
    feeder_->done();
    scheduler.join();
  }

 private:
  // Return whether the scheduler sleeps. The number of the sleep is equal before and after the
  // check, so the scheduler was not woken in between.
  bool sleeps_for_good() const {
    const uint64_t before = sleep_;
    return before != 0 && !is_awake_ && sleep_ == before;
  }

  void schedule() {
    uint64_t sleeps = 0;
    for (;;) {
      is_awake_ = false;
      const int32_t step = feeder_->scheduler().step(0);
      if (step == PTO_STEP_DONE) return;
      if (step == PTO_STEP_PROGRESS) continue;
      sleep_ = ++sleeps;
      while (!is_awake_) std::this_thread::yield();
      sleep_ = 0;
    }
  }

  std::mt19937_64 random_;
  pto_topology topology_{};
  pto_platform table_{};
  std::unique_ptr<Feeder> feeder_;
  uint64_t finished_ = 0;
  std::atomic<bool> is_awake_{false};
  std::atomic<uint64_t> sleep_{0};  // number of the current sleep; 0 while the scheduler is awake
};

// Invariant: A waiting orchestrator and an idle scheduler are woken by the event that they wait
// for.
TEST(no_wake_up_is_lost) {
  for (int round = 0; round < count_from_arguments; ++round) {
    Sleeper(seed_from_arguments + static_cast<uint64_t>(round)).run(10000);
  }
}
TEST(one_scheduler_smallest_window) {
  stress(1, 1, {4, 1}, 400);
}
TEST(one_scheduler_and_many_cores) {
  stress(24, 1, {64, 3}, 1000);
}
TEST(two_schedulers_smallest_window) {
  stress(2, 2, {4, 3}, 400);
}
TEST(three_schedulers_small_window) {
  stress(3, 3, {8, 2}, 600);
}
TEST(three_schedulers_and_many_cores) {
  stress(24, 3, {128, 3}, 1500);
}
TEST(more_schedulers_than_clusters) {
  stress(1, 3, {16, 16}, 400);
}

}  // namespace

// Arguments: test name or "all", rounds, first seed.
int main(int argc, char** argv) {
  if (argc > 2) count_from_arguments = std::atoi(argv[2]);
  if (argc > 3) seed_from_arguments = std::strtoull(argv[3], nullptr, 10);
  const bool is_all = argc < 2 || std::string(argv[1]) == "all";
  return check::run_all(is_all ? 1 : 2, argv);
}
