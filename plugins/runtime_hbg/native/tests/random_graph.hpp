// Random task graphs for tests.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

struct RandomGraph {
  int tasks;
  std::vector<std::pair<int, int>> edges;  // in the order of the add_edge calls
  std::vector<int> core_types;

  // Makes a graph whose edges lead from lower to higher ids. Some edges occur twice, and some tasks
  // have many successors.
  static RandomGraph make(std::mt19937_64& random, int most_tasks) {
    RandomGraph graph;
    graph.tasks = static_cast<int>(random() % static_cast<uint64_t>(most_tasks)) + 1;
    const int density = static_cast<int>(random() % 5);
    const int hub = static_cast<int>(random() % static_cast<uint64_t>(graph.tasks));
    for (int task = 0; task < graph.tasks; ++task) {
      graph.core_types.push_back(static_cast<int>(random() % 2));
      if (task > hub && random() % 2 == 0) graph.edges.emplace_back(hub, task);
      for (int edge = 0; task > 0 && edge < density; ++edge) {
        if (random() % 2 == 0) continue;
        const int from = static_cast<int>(random() % static_cast<uint64_t>(task));
        graph.edges.emplace_back(from, task);
        if (random() % 16 == 0) graph.edges.emplace_back(from, task);
      }
    }
    return graph;
  }
};
