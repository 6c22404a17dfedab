#include "parent_end.hpp"

#include "pto/engine/bell.hpp"

namespace pto::shm {

ParentEnd::ParentEnd(const pto_connection& connection)
    : connection_(connection),
      indices_(indices_of(connection)),
      frames_(frames_of(connection), &indices_->taken),
      answers_(answers_of(connection), &indices_->given, connection.queue_bytes) {}

// --- Frames -------------------------------------------------------------------------------------

int32_t ParentEnd::submit(const pto_frame_view* frames, int32_t count) {
  if (words_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  if (load(indices_->child_end) == static_cast<uint32_t>(End::kClosed)) return PTO_ENDPOINT_CLOSED;
  if (count <= 0) return 0;
  if (!can_be_sent(*frames[0].frame)) return PTO_ENDPOINT_PROTOCOL;
  int32_t put_ones = put(frames, count);
  if (put_ones < count) {
    // The child may have made room before it could see that somebody waits for it.
    ask_for_room(true);
    put_ones += put(frames + put_ones, count - put_ones);
  }
  if (put_ones == count) ask_for_room(false);
  if (frames_.is_broken()) {
    words_.break_off("the child says that it has taken %llu bytes of %llu that were submitted",
                     static_cast<unsigned long long>(load(indices_->taken)),
                     static_cast<unsigned long long>(frames_.end()));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (frames_.end() != published_) {
    published_ = frames_.end();
    publish(indices_->submitted, published_);
    engine::ring_published(connection_.child_bell);
  }
  return put_ones;
}

// What cannot is refused alone, at the head of a submit; what is before it goes.
bool ParentEnd::can_be_sent(const pto_frame& frame) {
  const uint64_t bytes = sizeof frame + uint64_t{frame.bytes};
  if (bytes > connection_.queue_bytes) {
    words_.refuse("a frame of %llu bytes is too large: at most %u (queue_bytes)",
                  static_cast<unsigned long long>(bytes), connection_.queue_bytes);
    return false;
  }
  if (frame.kind != PTO_FRAME_TASK && frame.kind != PTO_FRAME_CONTROL) {
    words_.refuse("there is no kind %u of frames", frame.kind);
    return false;
  }
  return true;
}

int32_t ParentEnd::put(const pto_frame_view* frames, int32_t count) {
  int32_t put_ones = 0;
  for (; put_ones < count; ++put_ones) {
    const pto_frame& frame = *frames[put_ones].frame;
    if (!can_be_sent(frame) || !frames_.put(frame, frames[put_ones].data, frame.bytes)) break;
    submitted_tasks_ += frame.kind == PTO_FRAME_TASK;
  }
  return put_ones;
}

void ParentEnd::ask_for_room(bool wanted) {
  if (wanted == wants_room_) return;
  wants_room_ = wanted;
  publish(indices_->parent_wants_room, wanted ? 1u : 0u);
}

// --- Answers ------------------------------------------------------------------------------------

int32_t ParentEnd::poll(pto_answer* answers, int32_t count) {
  if (words_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  free_told();
  // First: what was given before the child closed is then seen below.
  const bool is_closed = load(indices_->child_end) == static_cast<uint32_t>(End::kClosed);
  if (!look()) return PTO_ENDPOINT_PROTOCOL;
  int32_t given = 0;
  if (!tell_records(answers, count, given)) return given > 0 ? given : PTO_ENDPOINT_PROTOCOL;
  const bool has_more = has_waiting_ || answers_.has_more();
  if (!has_more && completed_ > told_ && given < count)
    tell_successes(completed_, answers[given++]);
  const bool is_all = !has_more && completed_ <= told_;
  return given == 0 && is_closed && is_all ? PTO_ENDPOINT_CLOSED : given;
}

// The caller is done with what the last poll told.
void ParentEnd::free_told() {
  if (answers_.freed() == told_index_) return;
  answers_.free_until(told_index_);
  publish(indices_->polled, told_index_);
  if (load(indices_->child_wants_room) != 0) engine::ring_published(connection_.child_bell);
}

// `completed` before the records: one that was given before it is then seen too.
bool ParentEnd::look() {
  const uint64_t completed = load(indices_->completed);
  if (completed < completed_ || completed > submitted_tasks_) {
    words_.break_off("the child says that %llu task frames have ended, of %llu submitted",
                     static_cast<unsigned long long>(completed),
                     static_cast<unsigned long long>(submitted_tasks_));
    return false;
  }
  completed_ = completed;
  if (answers_.look()) return true;
  words_.break_off("the child says that it gave %llu bytes of answers, which do not fit",
                   static_cast<unsigned long long>(load(indices_->given)));
  return false;
}

bool ParentEnd::tell_records(pto_answer* answers, int32_t count, int32_t& given) {
  while (given < count) {
    if (!has_waiting_) {
      const auto found = answers_.next(waiting_);
      if (found == Reader<Record>::Found::kNothing) return true;
      if (found == Reader<Record>::Found::kBroken) {
        words_.break_off("an answer has %u bytes of data, which do not fit", waiting_.head.bytes);
        return false;
      }
      if (!can_be(waiting_.head)) return false;
      has_waiting_ = true;
    }
    if (waiting_.head.succeeded > told_) {
      tell_successes(waiting_.head.succeeded, answers[given++]);
    } else {
      tell(waiting_, answers[given++]);
      has_waiting_ = false;
    }
  }
  return true;
}

bool ParentEnd::can_be(const Record& record) {
  const bool is_completed = record.kind == PTO_ANSWER_COMPLETED;
  if ((!is_completed && record.kind != PTO_ANSWER_REPLY) || record.outcome > PTO_OUTCOME_SKIPPED) {
    words_.break_off("an answer has the kind %u and the outcome %u", record.kind, record.outcome);
    return false;
  }
  const uint64_t before = record.succeeded > told_ ? record.succeeded : told_;
  if (before > submitted_tasks_ ||
      (is_completed && (record.number <= before || record.number > submitted_tasks_))) {
    words_.break_off("an answer is about task frame %llu after %llu, of %llu submitted",
                     static_cast<unsigned long long>(record.number),
                     static_cast<unsigned long long>(before),
                     static_cast<unsigned long long>(submitted_tasks_));
    return false;
  }
  return true;
}

void ParentEnd::tell(const Reader<Record>::Item& item, pto_answer& answer) {
  const Record& record = item.head;
  answer = {record.number, record.bytes == 0 ? nullptr : item.data, record.bytes, record.kind,
            record.outcome};
  if (record.kind == PTO_ANSWER_COMPLETED) told_ = record.number;
  told_index_ = item.end;
}

void ParentEnd::tell_successes(uint64_t number, pto_answer& answer) {
  answer = {number, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED};
  told_ = number;
}

void ParentEnd::close() {
  publish(indices_->parent_end, static_cast<uint32_t>(End::kClosed));
  engine::ring_published(connection_.child_bell);
}

}  // namespace pto::shm
