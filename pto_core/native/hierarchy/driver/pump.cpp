// Between the engine and the children: answers in, instructions out. All with the role.
#include <algorithm>

#include "driver/driver.hpp"
#include "driver/role.hpp"
#include "pto/engine/bell.hpp"

namespace pto::hierarchy {
namespace {

constexpr int32_t kAnswersAPoll = 64;

}  // namespace

// Whether anything has happened.
bool Driver::pump(uint32_t waiters) {
  since_pump_ = 0;
  if (is_closed_) return false;
  bool has_moved = poll_children();
  if (is_dirty_) {
    is_dirty_ = false;
    engine_->dispatch(out_);
    has_moved = has_moved || !out_.empty();
    process();
  }
  flush_children();
  const bool has_work = records_.live() > 0;
  if (has_work_.load(std::memory_order_relaxed) != has_work) has_work_ = has_work;
  // What was taken here, no child rings for.
  if (has_moved && waiting_.load() > waiters) engine::ring(board_.parent_bell());
  return has_moved;
}

bool Driver::poll_children() {
  bool has_moved = false;
  pto_answer answers[kAnswersAPoll];
  for (size_t i = 0; i < links_.size(); ++i) {
    ChildLink& link = *links_[i];
    while (link.is_awaited()) {
      const int32_t got = link.poll(answers, kAnswersAPoll);
      if (got < 0) note_broken(static_cast<int32_t>(i), link.error());
      if (got <= 0) break;
      has_moved = true;
      take_answers(static_cast<int32_t>(i), answers, got);
      if (got < kAnswersAPoll) break;
    }
    has_moved = read_board(static_cast<int32_t>(i)) || has_moved;
  }
  if (has_moved) process();
  return has_moved;
}

// A child tells successes late, merged into one answer; the board has each at once. Whether there
// were any.
bool Driver::read_board(int32_t child) {
  const ChildLink& link = *links_[static_cast<size_t>(child)];
  if (link.in_flight() == 0 || link.is_disbelieved()) return false;
  // As its sleep is looked at in child/answers.hpp: one of the two is seen.
  const uint64_t marked = board_.child(child).completed.load();
  const uint64_t last = std::min(marked, link.taken());
  uint64_t count = link.completed();
  while (count < last && board_.has_succeeded(child, count + 1)) count += 1;
  if (count == link.completed()) return false;
  tell_completion(child, count, Outcome::kSucceeded, kNone);
  return true;
}

void Driver::take_answers(int32_t child, const pto_answer* answers, int32_t count) {
  const ChildLink& link = *links_[static_cast<size_t>(child)];
  for (int32_t i = 0; i < count && !link.is_disbelieved(); ++i) {
    if (answers[i].kind == PTO_ANSWER_REPLY)
      take_reply(child, answers[i]);
    else
      take_completion(child, answers[i]);
  }
}

void Driver::take_completion(int32_t child, const pto_answer& answer) {
  ChildLink& link = *links_[static_cast<size_t>(child)];
  const uint64_t count = link.count_of(answer);
  if (answer.outcome == PTO_OUTCOME_SUCCEEDED && count <= link.completed())
    return;  // from the board
  if (count <= link.completed() || count > link.taken() || answer.outcome > PTO_OUTCOME_SKIPPED) {
    disbelieve(child, "the child reports the end of task frame " + std::to_string(answer.number) +
                          ", outcome " + std::to_string(answer.outcome) + "; frames " +
                          std::to_string(link.completed() + 1) + " to " +
                          std::to_string(link.sent()) + " are in flight");
    return;
  }
  int64_t cause = kNone;
  if (answer.outcome == PTO_OUTCOME_FAILED) {
    cause = next_cause_++;
    const Frame& frame = link.frame(count);
    outcomes_->causes[cause] = {
        std::string(static_cast<const char*>(answer.data), answer.data ? answer.bytes : 0),
        frame.task, child, frame.member};
  }
  tell_completion(child, count, static_cast<Outcome>(answer.outcome), cause);
}

// What the engine does not believe ends the connection: the child is of no use any more.
void Driver::tell_completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause) {
  try {
    engine_->completion(child, count, outcome, cause, out_);
  } catch (const Refusal& refusal) {
    if (refusal.kind != Refusal::Kind::kProtocol) throw;
    return disbelieve(child, refusal.what());
  }
  if (outcome != Outcome::kSucceeded) skip_consumers(child, count);
  links_[static_cast<size_t>(child)]->complete(count);
  is_dirty_ = true;
}

// Frames that were sent early behind one that has not succeeded.
void Driver::skip_consumers(int32_t child, uint64_t count) {
  for (size_t i = 0; i < links_.size(); ++i) {
    const ChildLink& link = *links_[i];
    for (uint64_t each = link.completed() + 1; each <= link.sent(); ++each) {
      const Frame& frame = link.frame(each);
      if (frame.required_child == child && frame.required_count == count)
        board_.skip(static_cast<int32_t>(i), each);
    }
  }
}

void Driver::take_reply(int32_t child, const pto_answer& answer) {
  ChildLink& link = *links_[static_cast<size_t>(child)];
  auto& awaited = link.awaited;
  const auto found = std::find(awaited.begin(), awaited.end(), answer.number);
  if (found == awaited.end()) {
    disbelieve(child, "the child replies to control frame " + std::to_string(answer.number) +
                          ", which waits for no reply");
    return;
  }
  awaited.erase(found);
  link.replied();
  const auto wanted = replies_.find(answer.number);
  if (wanted == replies_.end()) return;
  wanted->second.state = ReplyState::kGiven;
  wanted->second.data.assign(static_cast<const char*>(answer.data), answer.data ? answer.bytes : 0);
}

void Driver::flush_children() {
  for (size_t i = 0; i < links_.size(); ++i) {
    ChildLink& link = *links_[i];
    if (link.has_unsent() && !link.flush(*this)) note_broken(static_cast<int32_t>(i), link.error());
  }
}

void Driver::note_broken(int32_t child, const std::string& words) {
  actions_.push_back({child, kNone, links_[static_cast<size_t>(child)]->connection(), words});
}

void Driver::disbelieve(int32_t child, const std::string& words) {
  links_[static_cast<size_t>(child)]->disbelieve();
  note_broken(child, words);
}

void Driver::process() {
  for (size_t i = 0; i < out_.size(); ++i) {
    const Instruction instruction = out_[i];
    switch (instruction.what) {
      case Instruction::What::kSend:
        send(instruction);
        break;
      case Instruction::What::kSaveRegions:
        regions_.save(instruction.task);
        break;
      case Instruction::What::kRestoreRegions:
        regions_.restore(instruction.task);
        break;
      case Instruction::What::kDropRegions:
        regions_.drop(instruction.task);
        break;
      case Instruction::What::kTaskFinished:
        finish(instruction);
        break;
      case Instruction::What::kRoomFreed:
        break;
      case Instruction::What::kEndChild:
        actions_.push_back({instruction.child,
                            instruction.cause,
                            links_[static_cast<size_t>(instruction.child)]->connection(),
                            {}});
        break;
      case Instruction::What::kRunFinished:
        is_running_ = false;
        outcomes_->is_over = true;
        replayed_.reset();
        break;
    }
  }
  out_.clear();
}

// Where it sleeps, it comes to itself while the program makes the first task, which is likely to go
// there again.
void Driver::wake_first_child() {
  has_sent_ = false;
  if (first_child_ != kNone) engine::ring_published(&board_.child(first_child_).bell);
}

void Driver::send(const Instruction& instruction) {
  ChildLink& link = *links_[static_cast<size_t>(instruction.child)];
  if (!has_sent_) first_child_ = instruction.child;
  has_sent_ = true;
  const TaskRecord& record = *records_.find(instruction.task);
  for (; link.configs_sent < record.config; ++link.configs_sent)
    link.control(next_control_++, configs_[link.configs_sent]);
  if (record.timeout_ms > 0)
    board_.child(instruction.child).wants_clock.store(1, std::memory_order_relaxed);
  link.send(instruction.count, {instruction.task, instruction.member, instruction.required_child,
                                instruction.required_count});
}

void Driver::finish(const Instruction& instruction) {
  TaskRecord* record = records_.find(instruction.task);
  if (!record) return;
  counts_.finished += 1;
  if (record->timeout_ms > 0 && --timeouts_ == 0) stop_clocks();
  if (instruction.result != Result::kCompleted) {
    (instruction.result == Result::kFailed ? counts_.failed : counts_.poisoned) += 1;
    EndedTask& ended = outcomes_->ended[instruction.task] = ended_from(*record);
    ended.result = instruction.result;
    ended.cause = instruction.cause;
    ended.root = instruction.root;
    const auto given = causes_.find(instruction.cause);
    if (given != causes_.end()) outcomes_->causes.insert(*given);
  }
  if (!regions_.is_empty()) regions_.end(instruction.task);
  records_.end(instruction.task);
  if (!watches_.is_empty()) watches_.end(instruction.task);
  oldest_live_.store(records_.oldest(), std::memory_order_relaxed);
}

// Nobody's time is limited any more; send() starts a clock before the frame that needs it.
void Driver::stop_clocks() {
  for (size_t i = 0; i < links_.size(); ++i)
    board_.child(static_cast<int32_t>(i)).wants_clock.store(0, std::memory_order_relaxed);
}

// Who started before its time ran out is ended; deadlines count from the start in the child.
void Driver::look_for_deadlines() {
  if (timeouts_ == 0 || is_closed_) return;
  const uint64_t now_ns = engine::monotonic_ns();
  for (size_t i = 0; i < links_.size(); ++i) {
    const auto child = static_cast<int32_t>(i);
    ChildLink& link = *links_[i];
    const ChildRecord& seen = board_.child(child);
    const uint64_t started = seen.started.load(std::memory_order_acquire);
    if (started <= std::max(link.completed(), link.late) || started > link.sent()) continue;
    if (seen.completed.load(std::memory_order_acquire) >= started) continue;
    const TaskRecord* record = records_.find(link.frame(started).task);
    if (!record || record->timeout_ms == 0) continue;
    const uint64_t began_ns = seen.started_ns.load(std::memory_order_relaxed);
    if (now_ns < began_ns + uint64_t{record->timeout_ms} * 1'000'000) continue;
    link.late = started;
    const int64_t cause = next_cause_++;
    outcomes_->causes[cause] = {{}, link.frame(started).task, child, link.frame(started).member};
    engine_->deadline(child, started, cause, out_);
    process();
  }
}

}  // namespace pto::hierarchy
