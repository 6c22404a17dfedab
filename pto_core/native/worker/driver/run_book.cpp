#include "driver/run_book.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace pto::worker {

// If no run is open, drop the causes of earlier runs, because the outcomes of each run have their
// own copies. Keep the causes of lost children, and causes that were added since the last run
// began, because a call may still use them.
void RunBook::begin(const std::vector<std::unique_ptr<ChildLink>>& links, uint32_t number) {
  if (open_runs().empty()) {
    std::erase_if(causes_, [&](const auto& each) {
      const auto is_its = [&](const auto& link) { return link->presence.loss_cause == each.first; };
      return each.first < first_cause_ && std::none_of(links.begin(), links.end(), is_its);
    });
    first_cause_ = next_cause_;
    counts = {};
  }
  outcomes_ = std::make_shared<RunOutcomes>();
  outcomes_->number = number;
  outcomes_->first_task = next_task();
  open_.resize(std::max<size_t>(open_.size(), number + 1));
  open_[number] = outcomes_;
}

std::vector<std::shared_ptr<RunOutcomes>> RunBook::open_runs() const {
  std::vector<std::shared_ptr<RunOutcomes>> found;
  for (const auto& run : open_)
    if (run) found.push_back(run);
  return found;
}

RunOutcomes& RunBook::run_of(int64_t task) {
  const SentTask* record = records.find(task);
  return record ? run(record->run) : *outcomes_;
}

template <class Visit>
void RunBook::find_run(Visit visit) const {
  if (visit(*outcomes_)) return;
  for (const auto& run : open_)
    if (run && visit(*run)) return;
}

void RunBook::finish(const Instruction& instruction, const SentTask& record) {
  RunOutcomes& its_run = run(record.run);
  counts.finished += 1;
  its_run.counts.finished += 1;
  if (instruction.result == Result::kCompleted) return;
  const auto counter =
      instruction.result == Result::kFailed ? &TaskCounts::failed : &TaskCounts::poisoned;
  counts.*counter += 1;
  its_run.counts.*counter += 1;
  EndedTask& ended = its_run.ended[instruction.task] = ended_from(record);
  ended.result = instruction.result;
  ended.cause = instruction.cause;
  ended.root = instruction.root;
  ended.memory = memory_of(record);
  const auto given = causes_.find(instruction.cause);
  if (given != causes_.end()) its_run.causes.insert(*given);
}

int64_t RunBook::add_cause(std::string data) {
  causes_[next_cause_].data = std::move(data);
  return next_cause_++;
}

std::optional<Cause> RunBook::cause(int64_t number, const RunOutcomes* of) const {
  const Cause* known = of ? of->cause(number) : nullptr;
  if (!known)
    find_run([&](const RunOutcomes& run) { return (known = run.cause(number)) != nullptr; });
  if (known) return *known;
  const auto found = causes_.find(number);
  return found == causes_.end() ? std::nullopt : std::optional<Cause>(found->second);
}

void RunBook::explain(int64_t cause, std::string data) {
  find_run([&](RunOutcomes& run) {
    const auto found = run.causes.find(cause);
    if (found == run.causes.end()) return false;
    found->second.data = std::move(data);
    return true;
  });
}

std::optional<EndedTask> RunBook::ended(int64_t task, const RunOutcomes* of, int32_t* child) const {
  std::optional<EndedTask> known;
  const auto take_from = [&](const RunOutcomes& run) {
    const auto found = run.ended.find(task);
    if (found == run.ended.end()) return false;
    if (const Cause* why = run.cause(found->second.cause)) *child = why->child;
    known = found->second;
    return true;
  };
  if (!of || !take_from(*of)) find_run(take_from);
  return known;
}

std::vector<int64_t> RunBook::users(AddressSpan memory, const RunOutcomes& run) {
  const auto is_used = [memory](const std::vector<AddressSpan>& spans) {
    return std::any_of(spans.begin(), spans.end(), [memory](const AddressSpan& span) {
      return span.begin < memory.end && memory.begin < span.end;
    });
  };
  std::vector<int64_t> found;
  for (const auto& [task, ended] : run.ended)
    if (is_used(ended.memory)) found.push_back(task);
  for (int64_t task = std::max(records.oldest(), run.first_task); task < next_task(); ++task) {
    const SentTask* record = records.find(task);
    if (record && record->run == run.number && is_used(memory_of(*record))) found.push_back(task);
  }
  std::sort(found.begin(), found.end());
  return found;
}

EndedTask RunBook::ended_from(const SentTask& record) {
  EndedTask task;
  task.callable = record.callable;
  task.members = record.members;
  task.timeout_ms = record.timeout_ms;
  task.place = record.place;
  return task;
}

void Watches::stop() {
  watched_.clear();
  ended_.clear();
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

int Watches::descriptor() {
  if (descriptor_ < 0) descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return descriptor_;
}

void Watches::end_all() {
  for (const int64_t task : std::exchange(watched_, {})) report(task);
}

// Only the first of several tasks is written to the descriptor, so the counter is 0 and this write
// cannot fail.
void Watches::report(int64_t task) {
  ended_.push_back(task);
  if (ended_.size() == 1) static_cast<void>(eventfd_write(descriptor_, 1));
}

std::vector<int64_t> Watches::take() {
  eventfd_t count = 0;
  static_cast<void>(eventfd_read(descriptor_, &count));
  return std::exchange(ended_, {});
}

}  // namespace pto::worker
