#include "driver/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "pto/engine/bell.hpp"

namespace pto::worker {
namespace {

constexpr int32_t kAnswersPerPoll = 64;
// A child may take this long to start a task, whatever the time limit of the task.
constexpr uint64_t kShortestWaitNs = 2'000'000'000;

void trace_phase(Tracer& tracer, uint16_t event, uint64_t begin, uint64_t end) {
  tracer.lasted_until(end, kSchedulerTrack, event, begin);
}

void trace_completions(DriverCore& core, int32_t child, uint64_t count) {
  const ChildLink& link = core.link(child);
  for (uint64_t each = link.completed() + 1; each <= count; ++each) {
    const QueuedFrame& frame = link.frame(each);
    if (frame.task == kNone) continue;  // withdrawn
    core.tracer.add(kSchedulerTrack, PTO_TRACE_COMPLETE, static_cast<uint64_t>(frame.task),
                    frame_word(child, frame.member, each));
  }
  core.tracer.frames_ended(count - link.completed());
}

// Return the frame of the child that has exceeded its time limit, or 0. It is the frame that runs
// or, if the child runs none, the next one: a frame that a transport has lost never begins.
uint64_t late_frame(DriverCore& core, int32_t child, uint64_t now_ns) {
  ChildLink& link = core.link(child);
  const ChildRecord& seen = core.progress.child(child);
  const uint64_t started = seen.started.load(std::memory_order_acquire);
  const bool is_running =
      started > link.completed() && seen.completed.load(std::memory_order_acquire) < started;
  const uint64_t count = is_running ? started : std::max(started, link.completed()) + 1;
  if (count <= link.lateness.reported || count > link.sent()) return 0;
  const SentTask* record = core.book.records.find(link.frame(count).task);
  if (!record || record->timeout_ms == 0) return 0;
  uint64_t limit_ns = uint64_t{record->timeout_ms} * 1'000'000;
  if (is_running) {
    const uint64_t began_ns = seen.started_ns.load(std::memory_order_relaxed);
    return now_ns < began_ns + limit_ns ? 0 : count;
  }
  // The time before the start counts from the moment from which the child can start the frame. On
  // another host it counts from the end of the permitted silence, because the inputs of the task
  // are sent first.
  const QueuedFrame& frame = link.frame(count);
  if (frame.required_child != kNone &&
      core.link(frame.required_child).completed() < frame.required_count)
    return 0;
  if (link.lateness.next_to_start != count) {
    link.lateness.next_to_start = count;
    link.lateness.can_start_ns = now_ns;
  }
  limit_ns = std::max(limit_ns, kShortestWaitNs);
  const uint64_t since_ns =
      std::max(link.lateness.can_start_ns, seen.quiet_until_ns.load(std::memory_order_relaxed));
  return now_ns < since_ns + limit_ns ? 0 : count;
}

// Called before the failure of a task is reported to the engine.
void apply_retry_wait(DriverCore& core, int64_t task, int64_t cause, uint32_t wait_ms) {
  if (wait_ms == kNeverAgain) {
    core.engine->cancel_task(task, cause, core.out);  // a task in a child loses its retries
  } else if (wait_ms > 0) {
    core.engine->delay(task, true, core.out);
    core.delays.add(task, engine::monotonic_ns() + uint64_t{wait_ms} * 1'000'000);
  }
}

// Let the tasks run again whose wait has ended. Return whether there were any.
bool resume_delayed(DriverCore& core) {
  if (core.delays.is_empty()) return false;
  const std::vector<int64_t> due = core.delays.take_due(engine::monotonic_ns());
  for (const int64_t task : due) core.engine->delay(task, false, core.out);
  core.is_dirty = core.is_dirty || !due.empty();
  return !due.empty();
}

// Record that a run is over.
void finish_run(DriverCore& core, RunOutcomes& run) {
  run.failed = core.engine->failures(run.number);
  run.poisoned = core.engine->poisonings(run.number);
  run.is_over = true;
  core.book.end(run);
  if (--core.flags.open_runs == 0) core.replayed.reset();
}

}  // namespace

bool Exchange::poll_and_dispatch(uint32_t waiters) {
  if (core_.flags.is_closed) return false;
  const bool traces_phases = core_.tracer.records(PTO_TRACE_PHASES);
  const uint64_t begin = traces_phases ? trace_clock() : 0;
  const bool has_collected = poll_children();
  const uint64_t collected = traces_phases ? trace_clock() : 0;
  const bool has_filled = dispatch();
  if (has_collected && traces_phases)
    trace_phase(core_.tracer, PTO_TRACE_COLLECT, begin, collected);
  if (has_filled && traces_phases)
    trace_phase(core_.tracer, PTO_TRACE_FILL, collected, trace_clock());
  const bool has_moved = has_collected || has_filled;
  const bool has_work = core_.book.records.live() > 0;
  if (core_.flags.has_work.load(std::memory_order_relaxed) != has_work)
    core_.flags.has_work = has_work;
  // While this thread polls a child, the child does not ring for its completions.
  if (has_moved && core_.flags.waiting.load() > waiters) engine::ring(core_.progress.parent_bell());
  return has_moved;
}

bool Exchange::dispatch() {
  bool has_moved = false;
  if (core_.is_dirty) {
    core_.is_dirty = false;
    core_.engine->dispatch(core_.out);
    has_moved = !core_.out.empty();
    process();
  }
  flush_children();
  return has_moved;
}

bool Exchange::poll_children() {
  bool has_moved = false;
  pto_answer answers[kAnswersPerPoll];
  for (size_t i = 0; i < core_.links.size(); ++i) {
    ChildLink& link = *core_.links[i];
    while (link.is_awaited()) {
      const int32_t got = link.poll(answers, kAnswersPerPoll);
      if (got < 0) note_broken(static_cast<int32_t>(i), link.error());
      if (got <= 0) break;
      has_moved = true;
      take_answers(static_cast<int32_t>(i), answers, got);
      if (got < kAnswersPerPoll) break;
    }
    has_moved = read_progress(static_cast<int32_t>(i)) || has_moved;
  }
  if (has_moved) process();
  return has_moved;
}

// A child merges successes and reports them late, but the progress table contains each success at
// once. Report the successes that only the table contains to the engine. Return whether there were
// any.
bool Exchange::read_progress(int32_t child) {
  const ChildLink& link = core_.link(child);
  if (link.in_flight() == 0 || link.is_distrusted()) return false;
  // The child checks in child/child_loop.hpp whether the parent sleeps. The order of the accesses
  // ensures that one of the two sides sees the other.
  const uint64_t marked = core_.progress.child(child).completed.load();
  const uint64_t last = std::min(marked, link.taken());
  uint64_t count = link.completed();
  while (count < last && core_.progress.has_succeeded(child, count + 1)) count += 1;
  if (count == link.completed()) return false;
  report_completion(child, count, Outcome::kSucceeded, kNone);
  return true;
}

void Exchange::take_answers(int32_t child, const pto_answer* answers, int32_t count) {
  const ChildLink& link = core_.link(child);
  for (int32_t i = 0; i < count && !link.is_distrusted(); ++i) {
    if (answers[i].kind == PTO_ANSWER_REPLY)
      take_reply(child, answers[i]);
    else
      take_completion(child, answers[i]);
  }
}

void Exchange::take_completion(int32_t child, const pto_answer& answer) {
  ChildLink& link = core_.link(child);
  const uint64_t count = link.count_of(answer);
  if (answer.outcome == PTO_OUTCOME_SUCCEEDED && count <= link.completed())
    return;  // known from the progress table
  if (count <= link.completed() || count > link.taken() || answer.outcome > PTO_OUTCOME_SKIPPED) {
    reject(child, "the child reports an impossible end of task frame " +
                      std::to_string(answer.number) + ", outcome " +
                      std::to_string(answer.outcome) + "; frames " +
                      std::to_string(link.completed() + 1) + " to " + std::to_string(link.sent()) +
                      " are in flight");
    return;
  }
  int64_t cause = kNone;
  if (answer.outcome == PTO_OUTCOME_FAILED) {
    cause = core_.book.next_cause();
    const QueuedFrame& frame = link.frame(count);
    core_.book.run_of(frame.task).causes[cause] = {
        std::string(static_cast<const char*>(answer.data), answer.data ? answer.bytes : 0),
        frame.task, child, frame.member};
    if (frame.task != kNone)
      apply_retry_wait(core_, frame.task, cause, core_.progress.retry_wait_ms(child, count));
  }
  report_completion(child, count, static_cast<Outcome>(answer.outcome), cause);
}

// If the engine refuses the report as impossible, end the connection, because other reports of the
// child may be wrong too.
void Exchange::report_completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause) {
  try {
    if (core_.tracer.is_on()) trace_completions(core_, child, count);
    core_.engine->completion(child, count, outcome, cause, core_.out);
  } catch (const Refusal& refusal) {
    if (refusal.kind != Refusal::Kind::kProtocol) throw;
    return reject(child, refusal.what());
  }
  if (outcome != Outcome::kSucceeded) skip_consumers(child, count);
  core_.link(child).complete(count);
  core_.is_dirty = true;
}

// Skip frames that were sent early and require this frame, which has not succeeded.
void Exchange::skip_consumers(int32_t child, uint64_t count) {
  for (size_t i = 0; i < core_.links.size(); ++i) {
    const ChildLink& link = *core_.links[i];
    for (uint64_t each = link.completed() + 1; each <= link.sent(); ++each) {
      const QueuedFrame& frame = link.frame(each);
      if (frame.required_child == child && frame.required_count == count)
        core_.progress.skip(static_cast<int32_t>(i), each);
    }
  }
}

void Exchange::take_reply(int32_t child, const pto_answer& answer) {
  ChildLink& link = core_.link(child);
  auto& awaited = link.awaited;
  const auto found = std::find(awaited.begin(), awaited.end(), answer.number);
  if (found == awaited.end()) {
    reject(child, "the child replies to control frame " + std::to_string(answer.number) +
                      ", which is not waiting for a reply");
    return;
  }
  awaited.erase(found);
  core_.replies.give(answer.number, answer.data, answer.bytes);
}

void Exchange::flush_children() {
  for (size_t i = 0; i < core_.links.size(); ++i) {
    ChildLink& link = *core_.links[i];
    if (link.has_unsent() && !link.flush(*this)) note_broken(static_cast<int32_t>(i), link.error());
  }
}

void Exchange::note_broken(int32_t child, const std::string& message) {
  core_.actions.push_back({child, kNone, core_.link(child).connection(), message});
}

void Exchange::reject(int32_t child, const std::string& message) {
  core_.link(child).distrust();
  note_broken(child, message);
}

void Exchange::process() {
  for (size_t i = 0; i < core_.out.size(); ++i) {
    const Instruction instruction = core_.out[i];
    switch (instruction.what) {
      case Instruction::What::kSend:
        send(instruction);
        break;
      case Instruction::What::kSaveRegions:
        core_.regions.save(instruction.task);
        break;
      case Instruction::What::kRestoreRegions:
        core_.regions.restore(instruction.task);
        break;
      case Instruction::What::kDropRegions:
        core_.regions.drop(instruction.task);
        break;
      case Instruction::What::kTaskFinished:
        finish(instruction);
        break;
      case Instruction::What::kRoomFreed:
        break;
      case Instruction::What::kEndChild:
        core_.actions.push_back(
            {instruction.child, instruction.cause, core_.link(instruction.child).connection(), {}});
        break;
      case Instruction::What::kRunFinished:
        finish_run(core_, core_.book.run(static_cast<uint32_t>(instruction.count)));
        break;
    }
  }
  core_.out.clear();
}

void Exchange::wake_first_child() {
  has_sent_ = false;
  if (first_child_ != kNone) engine::ring_published(&core_.progress.child(first_child_).bell);
}

void Exchange::send(const Instruction& instruction) {
  ChildLink& link = core_.link(instruction.child);
  if (!has_sent_) first_child_ = instruction.child;
  has_sent_ = true;
  const SentTask& record = *core_.book.records.find(instruction.task);
  for (; link.configs_sent < record.config; ++link.configs_sent)
    link.control(core_.replies.next(), core_.catalogue.config_frame(link.configs_sent + 1));
  if (core_.configuration.near_inputs)
    core_.configuration.near_inputs->sent(record, instruction.member, instruction.child);
  if (record.timeout_ms > 0)
    core_.progress.child(instruction.child).wants_clock.store(1, std::memory_order_relaxed);
  if (core_.tracer.is_on())
    core_.tracer.add(kSchedulerTrack, PTO_TRACE_DISPATCH,
                     dispatch_word(static_cast<uint64_t>(instruction.task), record.callable),
                     frame_word(instruction.child, instruction.member, instruction.count));
  link.send(instruction.count, {instruction.task, instruction.member, instruction.required_child,
                                instruction.required_count});
}

void Exchange::finish(const Instruction& instruction) {
  SentTask* record = core_.book.records.find(instruction.task);
  if (!record) return;
  core_.book.finish(instruction, *record);
  if (core_.tracer.is_on())
    core_.tracer.add(kSchedulerTrack, kTraceFinish, static_cast<uint64_t>(instruction.task),
                     static_cast<uint64_t>(instruction.result));
  if (record->timeout_ms > 0 && --core_.flags.timeouts == 0) stop_clocks();
  if (!core_.regions.is_empty()) core_.regions.end(instruction.task);
  if (!core_.delays.is_empty()) core_.delays.end(instruction.task);
  core_.book.records.end(instruction.task);
  if (!core_.watches.is_empty()) core_.watches.end(instruction.task);
  core_.flags.oldest_live.store(core_.book.records.oldest(), std::memory_order_relaxed);
}

// Called when no live task has a time limit. send() starts the clock again before the next frame
// with a time limit.
void Exchange::stop_clocks() {
  for (size_t i = 0; i < core_.links.size(); ++i)
    core_.progress.child(static_cast<int32_t>(i)).wants_clock.store(0, std::memory_order_relaxed);
}

void Exchange::check_deadlines() {
  if (core_.flags.is_closed) return;
  if (resume_delayed(core_)) dispatch();
  if (core_.flags.timeouts == 0) return;
  const uint64_t now_ns = engine::monotonic_ns();
  for (size_t i = 0; i < core_.links.size(); ++i) {
    const auto child = static_cast<int32_t>(i);
    const uint64_t count = late_frame(core_, child, now_ns);
    if (count == 0) continue;
    ChildLink& link = *core_.links[i];
    link.lateness.reported = count;
    const int64_t cause = core_.book.next_cause();
    core_.book.run_of(link.frame(count).task).causes[cause] = {
        {}, link.frame(count).task, child, link.frame(count).member};
    core_.engine->deadline(child, count, cause, core_.out);
    process();
  }
}

void Exchange::note_returning(ChildLink& link, bool returns) {
  if (link.presence.is_returning == returns) return;
  link.presence.is_returning = returns;
  returns ? ++core_.flags.returning : --core_.flags.returning;
}

// Process the answers of the child, then the successes that only the progress table contains.
// Report the remaining frames as lost. Frames of other children that require a lost frame are
// marked as skipped before the progress table lets those children continue.
void Exchange::lose(int32_t child, int64_t cause, bool returns) {
  ChildLink& link = core_.link(child);
  pto_answer answers[16];
  int32_t got = 0;
  while ((got = link.poll(answers, 16)) > 0) take_answers(child, answers, got);
  read_progress(child);
  process();
  const uint64_t begun = last_begun(child);
  for (uint64_t count = link.completed() + 1; count <= link.sent(); ++count)
    skip_consumers(child, count);
  for (const uint64_t number : link.lose()) core_.replies.lose(number);
  link.detach();
  link.presence.is_lost = !returns;
  note_returning(link, returns);
  link.presence.loss_cause = cause;
  if (core_.configuration.near_inputs) core_.configuration.near_inputs->lost(child);
  std::erase_if(core_.actions, [&](const Action& action) { return action.child == child; });
  if (core_.tracer.is_on()) core_.tracer.drain();
  core_.progress.lose(child, link.sent());
  core_.engine->child_lost(child, cause, begun, returns, core_.out);
  core_.is_dirty = true;
  process();
}

// Return the last frame that may have begun in a lost child, or on the host to which the child
// passed it. A skipped frame counts as begun, although it did not run.
uint64_t Exchange::last_begun(int32_t child) const {
  const ChildLink& link = core_.link(child);
  const ChildRecord& seen = core_.progress.child(child);
  const uint64_t begun = std::max(seen.started.load(std::memory_order_acquire),
                                  seen.may_have_begun.load(std::memory_order_acquire));
  return std::clamp(begun, link.completed(), link.sent());
}

pto_frame_view Exchange::view_of(const QueuedFrame& frame, bool receives_use,
                                 pto_frame* head) const {
  *head = {};
  head->kind = PTO_FRAME_TASK;
  head->required_child = frame.required_child;
  if (frame.task == kNone) return {head, nullptr};  // withdrawn: the child skips the frame
  const SentTask& record = *const_cast<Records&>(core_.book.records).find(frame.task);
  const bool has_arguments = (record.flags & SentTask::kHasArguments) != 0;
  const BlobPlace blob = has_arguments ? blob_of(record, frame.member) : BlobPlace{nullptr, 0};
  if (has_arguments && (record.flags & SentTask::kHasUses)) write_uses(blob, receives_use);
  std::memcpy(head->callable, core_.catalogue.digest(record.callable).data(), PTO_DIGEST_BYTES);
  head->required_count = frame.required_child == kNone ? 0 : frame.required_count;
  head->config = record.config;
  head->number = static_cast<uint64_t>(frame.task);
  head->bytes = blob.bytes;
  head->flags = has_arguments ? PTO_FRAME_HAS_ARGUMENTS : 0;
  if (record.flags & SentTask::kHasKinds) head->flags |= PTO_FRAME_HAS_KINDS;
  return {head, blob.data};
}

void Exchange::set_ready(int32_t child) {
  core_.engine->child_ready(child, core_.out);
  ChildLink& link = core_.link(child);
  link.presence.is_ready = true;
  link.presence.is_lost = false;
  note_returning(link, false);
  core_.is_dirty = true;
  process();
}

void Exchange::lose_all(int64_t cause) {
  const std::vector<std::shared_ptr<RunOutcomes>> open = core_.book.open_runs();
  for (const auto& run : open) {
    run->is_stopped = true;
    core_.engine->cancel(cause, core_.out, run->number);
    process();
  }
  for (size_t i = 0; i < core_.links.size(); ++i)
    if (!core_.links[i]->presence.is_lost) lose(static_cast<int32_t>(i), cause, false);
  for (const auto& run : open)
    if (!run->is_over) finish_run(core_, *run);
  core_.flags.has_work = false;
}

void Exchange::wake_waiting() {
  if (core_.flags.waiting.load(std::memory_order_relaxed) > 0)
    engine::ring(core_.progress.parent_bell());
}

std::optional<EndedTask> describe_live(DriverCore& core, int64_t task, int32_t* child) {
  const SentTask* record = core.book.records.find(task);
  if (!record) return std::nullopt;
  for (size_t i = 0; i < core.links.size(); ++i) {
    const ChildLink& link = *core.links[i];
    for (uint64_t count = link.completed() + 1; count <= link.sent(); ++count)
      if (link.frame(count).task == task) *child = static_cast<int32_t>(i);
  }
  return RunBook::ended_from(*record);
}

}  // namespace pto::worker
