#include "log_analysis.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <tuple>

namespace pto::insight {

LogAnalysis::LogAnalysis(std::vector<pto_logged_task> tasks, std::vector<pto_tensor_data> accesses,
                         std::vector<pto_logged_event> events, bool is_full, uint32_t blocks)
    : tasks_(std::move(tasks)),
      accesses_(std::move(accesses)),
      events_(std::move(events)),
      tables_({tasks_, accesses_, events_}),
      edges_(find_edges(tables_, is_full, blocks)) {
  sort_reasons();
  rank_tasks();
  build_order();
}

// The order in which a search finds regions depends on addresses, which differ between runs.
void LogAnalysis::sort_reasons() {
  const auto key = [](const EdgeReason& reason) {
    return std::tuple(reason.second, reason.first, reason.second_access, reason.first_access,
                      reason.why);
  };
  const auto is_less = [&](const EdgeReason& a, const EdgeReason& b) { return key(a) < key(b); };
  const auto is_equal = [&](const EdgeReason& a, const EdgeReason& b) { return key(a) == key(b); };
  std::vector<EdgeReason>& reasons = edges_.reasons;
  std::sort(reasons.begin(), reasons.end(), is_less);
  reasons.erase(std::unique(reasons.begin(), reasons.end(), is_equal), reasons.end());
  for (const EdgeReason& reason : reasons) {
    const bool is_known = !unique_.empty() && unique_.back().first == reason.first &&
                          unique_.back().second == reason.second;
    if (!is_known) unique_.push_back({reason.first, reason.second, false});
  }
}

// Only a program that states its edges can have edges to earlier tasks.
void LogAnalysis::rank_tasks() {
  const uint32_t count = tables_.tasks();
  rank_.resize(count);
  std::iota(rank_.begin(), rank_.end(), 0u);
  if (std::all_of(unique_.begin(), unique_.end(),
                  [](const TaskPair& edge) { return edge.first < edge.second; })) {
    return;
  }
  std::vector<std::vector<uint32_t>> consumers(count);
  std::vector<uint32_t> waits(count, 0);
  for (const TaskPair& edge : unique_) {
    consumers[edge.first].push_back(edge.second);
    ++waits[edge.second];
  }
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t task = 0; task < count; ++task) {
    if (waits[task] == 0) ready.push(task);
  }
  uint32_t next = 0;
  for (; !ready.empty(); ++next) {
    const uint32_t task = ready.top();
    ready.pop();
    rank_[task] = next;
    for (const uint32_t consumer : consumers[task]) {
      if (--waits[consumer] == 0) ready.push(consumer);
    }
  }
  if (next != count) throw BadLog("the edges form a cycle");
}

void LogAnalysis::build_order() {
  const uint32_t count = tables_.tasks();
  std::vector<uint32_t> first(count + 1, 0);
  for (const TaskPair& edge : unique_) ++first[rank_[edge.second] + 1];
  for (uint32_t task = 0; task < count; ++task) first[task + 1] += first[task];
  std::vector<uint32_t> producers(unique_.size());
  std::vector<uint32_t> place(unique_.size());  // of each edge in `producers`
  std::vector<uint32_t> next(first.begin(), first.end());
  for (size_t edge = 0; edge < unique_.size(); ++edge) {
    place[edge] = next[rank_[unique_[edge].second]]++;
    producers[place[edge]] = rank_[unique_[edge].first];
  }
  order_.emplace(first, producers);
  for (size_t edge = 0; edge < unique_.size(); ++edge) {
    unique_[edge].is_redundant = order_->redundant()[place[edge]];
  }
}

std::vector<uint64_t> LogAnalysis::extents() const {
  std::vector<uint64_t> both;
  both.reserve(2 * size_t{tables_.accesses()});
  for (uint32_t access = 0; access < tables_.accesses(); ++access) {
    both.push_back(tables_.region(access).begin);
    both.push_back(tables_.region(access).end);
  }
  return both;
}

bool LogAnalysis::is_before(uint32_t a, uint32_t b) const {
  if (a >= tables_.tasks() || b >= tables_.tasks()) throw std::out_of_range("no such task");
  return order_->is_before(rank_[a], rank_[b]);
}

}  // namespace pto::insight
