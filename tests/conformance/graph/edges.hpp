// A graph from memory: its tasks run function 0, the kit's recorder, with four arguments.
#pragma once

#include <cstdint>
#include <vector>

struct Edge {
  uint64_t from, to;
};

// The arguments of the orchestration: a log, the edges in the order of `to`, and the counts.
struct EdgeList {
  uint64_t log;
  const Edge* edges;
  uint64_t tasks, num_edges;
};

// Calls `submit(arguments)`, which returns the number of the task, and then `add_edge(from, to)`
// with such numbers for each edge to that task.
template <class Submit, class AddEdge>
void build(const EdgeList& list, Submit submit, AddEdge add_edge) {
  const Edge* edge = list.edges;
  std::vector<int64_t> numbers;
  for (uint64_t i = 0; i < list.tasks; ++i) {
    uint64_t arguments[] = {list.log, i, 0, 0};
    numbers.push_back(submit(arguments));
    for (; edge != list.edges + list.num_edges && edge->to == i; ++edge) {
      add_edge(numbers[edge->from], numbers[i]);
    }
  }
}
