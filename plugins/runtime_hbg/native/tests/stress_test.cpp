// Both variants with real scheduler threads: random graphs, in which every edge is respected and no
// wake-up is lost.
#include <dlfcn.h>

#include <string>

#include "random_graph.hpp"
#include "threads_platform.hpp"
#include "variant_library.hpp"

namespace {

int count_from_arguments = 60;
uint64_t seed_from_arguments = 1;

void check_payload(const pto_dispatch& item) {
  CHECK_EQUAL(item.payload->num_args, 1u);
  CHECK_EQUAL(item.payload->task, item.payload->cookie);
  CHECK_EQUAL(reinterpret_cast<const uint64_t*>(item.payload + 1)[0], 3 * item.payload->task);
}

// Submits the graph, and publishes its tasks in random order. If tasks run during the build,
// sometimes waits for the last task when all submitted tasks are published.
void build_and_publish(const pto_runtime_api& api, ThreadsPlatform& platform,
                       const RandomGraph& graph, std::mt19937_64& random) {
  void* runtime = platform.runtime();
  const bool is_concurrent = (api.capabilities & PTO_RUNTIME_CONCURRENT_BUILD) != 0;
  std::vector<int> held_back;
  size_t edge = 0;
  for (int task = 0; task < graph.tasks; ++task) {
    const uint64_t arg = 3 * static_cast<uint64_t>(task);
    const int type = graph.core_types[static_cast<size_t>(task)];
    const pto_task record{type, type, 1, 0, &arg, 0, static_cast<uint64_t>(task), nullptr};
    CHECK_EQUAL(api.submit(runtime, &record), task);
    for (; edge < graph.edges.size() && graph.edges[edge].second == task; ++edge) {
      CHECK_EQUAL(api.add_edge(runtime, graph.edges[edge].first, task), PTO_OK);
    }
    held_back.push_back(task);
    while (!held_back.empty() && random() % 4 != 0) {
      std::swap(held_back[random() % held_back.size()], held_back.back());
      CHECK_EQUAL(api.publish(runtime, held_back.back()), PTO_OK);
      held_back.pop_back();
    }
    if (is_concurrent && held_back.empty() && random() % 8 == 0) {
      CHECK(platform.wait_for(static_cast<uint64_t>(task)));
    }
  }
  for (const int task : held_back) CHECK_EQUAL(api.publish(runtime, task), PTO_OK);
}

void check_run(const RandomGraph& graph, const std::vector<ThreadsPlatform::Span>& spans) {
  for (int task = 0; task < graph.tasks; ++task) {
    CHECK_EQUAL(spans[static_cast<size_t>(task)].runs.load(), 1);
  }
  for (const auto& [from, to] : graph.edges) {
    CHECK(spans[static_cast<size_t>(from)].end.load() <
          spans[static_cast<size_t>(to)].start.load());
  }
}

void stress(const char* variant, uint32_t blocks, uint32_t schedulers, int most_tasks) {
  const pto_runtime_api* api = load_variant(variant);
  for (int round = 0; round < count_from_arguments; ++round) {
    const uint64_t seed = seed_from_arguments + static_cast<uint64_t>(round);
    std::mt19937_64 random(seed);
    std::printf("  %s seed %llu blocks %u schedulers %u\n", variant,
                static_cast<unsigned long long>(seed), blocks, schedulers);
    ThreadsPlatform platform(*api, blocks, schedulers, seed);
    platform.on_start = check_payload;
    for (int run = 0; run < 2; ++run) {
      const RandomGraph graph = RandomGraph::make(random, most_tasks);
      std::vector<ThreadsPlatform::Span> spans(static_cast<size_t>(graph.tasks));
      platform.run(spans, [&] {
        build_and_publish(*api, platform, graph, random);
        return 0;
      });
      if (platform.error().status != PTO_OK)
        check::fail(__FILE__, __LINE__, platform.error().message);
      CHECK_EQUAL(platform.stalls(), 0);
      check_run(graph, spans);
      platform.end();
    }
  }
}

// Invariant: Every edge is counted exactly once: in the successor list of its producer and in the
// fan-in of its consumer, or in neither if the producer has completed.
//
// Here the orchestrator adds edges from tasks that may complete at the same time.
TEST(aicpu_edges_from_completing_tasks) {
  const pto_runtime_api* api = load_variant("aicpu_build_graph");
  ThreadsPlatform platform(*api, 1, 1, seed_from_arguments);
  platform.on_start = check_payload;
  for (int round = 0; round < count_from_arguments / 10 + 1; ++round) {
    RandomGraph graph;
    graph.tasks = 5000;
    std::vector<ThreadsPlatform::Span> spans(static_cast<size_t>(graph.tasks));
    platform.run(spans, [&] {
      for (int task = 0; task < graph.tasks; ++task) {
        const uint64_t arg = 3 * static_cast<uint64_t>(task);
        const pto_task record{task % 2, -1, 1, 0, &arg, 0, static_cast<uint64_t>(task), nullptr};
        CHECK_EQUAL(api->submit(platform.runtime(), &record), task);
        for (int from = task > 3 ? task - 3 : 0; from < task; ++from) {
          graph.edges.emplace_back(from, task);
          CHECK_EQUAL(api->add_edge(platform.runtime(), from, task), PTO_OK);
        }
        CHECK_EQUAL(api->publish(platform.runtime(), task), PTO_OK);
      }
      return 0;
    });
    CHECK_EQUAL(platform.stalls(), 0);
    check_run(graph, spans);
    platform.end();
  }
}

TEST(host_few_cores) {
  stress("host_build_graph", 1, 1, 300);
}
TEST(host_all_cores) {
  stress("host_build_graph", 24, 4, 600);
}
TEST(host_more_schedulers_than_blocks) {
  stress("host_build_graph", 2, 4, 300);
}
TEST(aicpu_few_cores) {
  stress("aicpu_build_graph", 1, 1, 300);
}
TEST(aicpu_all_cores) {
  stress("aicpu_build_graph", 24, 3, 600);
}
TEST(aicpu_more_schedulers_than_blocks) {
  stress("aicpu_build_graph", 2, 3, 300);
}

}  // namespace

// Arguments: test name or "all", rounds, first seed.
int main(int argc, char** argv) {
  if (argc > 2) count_from_arguments = std::atoi(argv[2]);
  if (argc > 3) seed_from_arguments = std::strtoull(argv[3], nullptr, 10);
  const bool is_all = argc < 2 || std::string(argv[1]) == "all";
  return check::run_all(is_all ? 1 : 2, argv);
}
