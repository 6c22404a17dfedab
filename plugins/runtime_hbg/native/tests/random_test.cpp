// Random graphs whose tasks compute values: every order of execution that respects the edges must
// give the result of sequential execution.
//
// Invariant of this file: A task runs once, after all its predecessors, on a core of its type.
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"
#include "random_graph.hpp"

namespace {

int rounds = 300;
uint64_t first_seed = 1;

// The value of each task, computed from its number and the values of its predecessors in the order
// of their edges. A wrong order gives another value.
struct Values {
  explicit Values(const RandomGraph& graph)
      : predecessors(static_cast<size_t>(graph.tasks)), value(predecessors.size(), 0) {
    for (const auto& [from, to] : graph.edges) {
      predecessors[static_cast<size_t>(to)].push_back(static_cast<size_t>(from));
    }
  }

  void compute(size_t task) {
    uint64_t sum = task + 1;
    for (const size_t from : predecessors[task]) sum = sum * 1099511628211u ^ value[from];
    value[task] += sum;  // not `=`, so that a task that runs twice has a wrong value
  }

  std::vector<std::vector<size_t>> predecessors;
  std::vector<uint64_t> value;
};

void compare(const std::string& variant, std::vector<pto_option> options) {
  TestDevice device(variant, std::move(options));
  Values* values = nullptr;
  for (const int32_t type : {PTO_CORE_AIC, PTO_CORE_AIV}) {
    device.add_kernel(type, type,
                      [&](const pto_payload& payload) { return values->compute(payload.task), 0; });
  }
  for (int round = 0; round < rounds; ++round) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(round);
    std::mt19937_64 random(seed);
    const RandomGraph graph = RandomGraph::make(random, round % 10 == 0 ? 5000 : 100);
    Values expected(graph);
    for (size_t task = 0; task < expected.value.size(); ++task) expected.compute(task);
    Values computed(graph);
    values = &computed;
    const pto_status status = device.run([&] {
      for (const int type : graph.core_types) device.add_task(type);
      for (const auto& [from, to] : graph.edges) device.add_edge(from, to);
      for (int task = graph.tasks - 1; task >= 0; --task) device.publish(task);
      return 0;
    });
    std::printf("  %s seed %llu: %d tasks\n", variant.c_str(),
                static_cast<unsigned long long>(seed), graph.tasks);
    if (status != PTO_OK) check::fail(__FILE__, __LINE__, device.error().message);
    CHECK(computed.value == expected.value);
  }
}

TEST(host) {
  compare("host_build_graph", {});
}
TEST(aicpu_concurrent) {
  compare("aicpu_build_graph", {});
}
TEST(aicpu_sequential) {
  compare("aicpu_build_graph", {{"build_mode", "0"}});
}

}  // namespace

// Arguments: test name or "all", rounds, first seed.
int main(int argc, char** argv) {
  if (argc > 2) rounds = std::atoi(argv[2]);
  if (argc > 3) first_seed = std::strtoull(argv[3], nullptr, 10);
  const bool is_all = argc < 2 || std::string(argv[1]) == "all";
  return check::run_all(is_all ? 1 : 2, argv);
}
