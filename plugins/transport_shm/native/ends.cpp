#include "ends.hpp"

#include "pto/engine/bell.hpp"

namespace pto::shm {

RingChildEnd::RingChildEnd(const pto_connection& connection)
    : connection_(connection),
      indices_(indices_of(connection)),
      frames_(frames_of(connection), &indices_->submitted, connection.queue_bytes - kLine),
      answers_(answers_of(connection), &indices_->polled) {}

// --- Frames of the child ------------------------------------------------------------------------

int32_t RingChildEnd::receive(pto_frame_view* frames, int32_t count) {
  const uint32_t wanted = count < 0 ? 0 : static_cast<uint32_t>(count);
  if (past_last_ - first_ < wanted && !error_.is_broken()) {
    // Read the close flag before the index, so that the reads below see all frames that were
    // submitted before the close.
    const bool is_closed = load(indices_->parent_end) == static_cast<uint32_t>(End::kClosed);
    if (!frames_.refresh()) {
      error_.set_broken("the parent published %llu submitted bytes, which is not a valid index",
                        static_cast<unsigned long long>(load(indices_->submitted)));
    }
    while (past_last_ - first_ < wanted && past_last_ - first_ < kVisible && read_next()) {
    }
    if (past_last_ == first_ && is_closed && !error_.is_broken()) return PTO_ENDPOINT_CLOSED;
  }
  if (past_last_ == first_ && error_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  const uint32_t visible = past_last_ - first_ < wanted ? past_last_ - first_ : wanted;
  for (uint32_t i = 0; i < visible; ++i) {
    const Item& item = visible_[(first_ + i) % kVisible];
    frames[i] = {&item.head, item.data};
  }
  return static_cast<int32_t>(visible);
}

bool RingChildEnd::read_next() {
  if (error_.is_broken()) return false;
  Item& item = visible_[past_last_ % kVisible];
  const auto found = frames_.next(item);
  if (found == Reader<pto_frame>::Found::kNothing) return false;
  const uint16_t kind = item.head.kind;
  if (found == Reader<pto_frame>::Found::kBroken) {
    error_.set_broken("a frame has %u bytes of data, more than allowed or published",
                      item.head.bytes);
  } else if (kind != PTO_FRAME_TASK && kind != PTO_FRAME_CONTROL) {
    error_.set_broken("a frame has the kind %u", kind);
  } else {
    ++past_last_;
    return true;
  }
  return false;
}

void RingChildEnd::take(int32_t count) {
  const uint32_t visible = past_last_ - first_;
  if (count <= 0 || visible == 0) return;
  first_ += static_cast<uint32_t>(count) < visible ? static_cast<uint32_t>(count) : visible;
  const uint64_t end = visible_[(first_ - 1) % kVisible].end;
  frames_.free_until(end);
  publish(indices_->taken, end);
  if (load(indices_->parent_wants_space) != 0) engine::ring_published(connection_.parent_bell);
}

// --- Answers of the child -----------------------------------------------------------------------

int32_t RingChildEnd::answer(const pto_answer& answer) {
  if (answers_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  if (load(indices_->parent_end) == static_cast<uint32_t>(End::kClosed)) return PTO_ENDPOINT_CLOSED;
  const bool is_completed = answer.kind == PTO_ANSWER_COMPLETED;
  if (is_completed && answer.number <= answered_) {
    error_.set_refused("task frame %llu is answered after task frame %llu",
                       static_cast<unsigned long long>(answer.number),
                       static_cast<unsigned long long>(answered_));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (is_completed && answer.outcome == PTO_OUTCOME_SUCCEEDED && answer.bytes == 0) {
    succeeded_ = answer.number;
    publish(indices_->completed, succeeded_);
  } else {
    const int32_t count = put(answer);
    if (count != 1) return count;
  }
  if (is_completed) answered_ = answer.number;
  engine::ring_published(connection_.parent_bell);
  return 1;
}

int32_t RingChildEnd::put(const pto_answer& answer) {
  if (uint64_t{answer.bytes} + kLine > connection_.queue_bytes) {
    error_.set_refused("an answer with %u bytes of data is too large: at most %llu are possible",
                       answer.bytes,
                       static_cast<unsigned long long>(connection_.queue_bytes - kLine));
    return PTO_ENDPOINT_PROTOCOL;
  }
  const Record record{answer.number, succeeded_, answer.bytes, answer.kind, answer.outcome, {}};
  bool is_put = answers_.put(record, answer.data, answer.bytes);
  if (!is_put) {
    // Set the request flag, then try again: the parent may have freed space before it saw the flag.
    request_space(true);
    is_put = answers_.put(record, answer.data, answer.bytes);
  }
  if (answers_.is_broken()) {
    error_.set_broken(
        "the parent published %llu polled bytes, which is invalid: %llu were answered",
        static_cast<unsigned long long>(load(indices_->polled)),
        static_cast<unsigned long long>(answers_.end()));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (!is_put) return 0;
  request_space(false);
  publish(indices_->answered, answers_.end());
  return 1;
}

void RingChildEnd::request_space(bool wanted) {
  if (wanted == wants_space_) return;
  wants_space_ = wanted;
  publish(indices_->child_wants_space, wanted ? 1u : 0u);
}

void RingChildEnd::close() {
  publish(indices_->child_end, static_cast<uint32_t>(End::kClosed));
  engine::ring_published(connection_.parent_bell);
}

RingParentEnd::RingParentEnd(const pto_connection& connection)
    : connection_(connection),
      indices_(indices_of(connection)),
      frames_(frames_of(connection), &indices_->taken),
      answers_(answers_of(connection), &indices_->answered, connection.queue_bytes) {}

// --- Frames of the parent -----------------------------------------------------------------------

int32_t RingParentEnd::submit(const pto_frame_view* frames, int32_t count) {
  if (error_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  if (load(indices_->child_end) == static_cast<uint32_t>(End::kClosed)) return PTO_ENDPOINT_CLOSED;
  if (count <= 0) return 0;
  if (!is_sendable(*frames[0].frame)) return PTO_ENDPOINT_PROTOCOL;
  int32_t put_count = put(frames, count);
  if (put_count < count) {
    // Set the request flag, then try again: the child may have freed space before it saw the flag.
    request_space(true);
    put_count += put(frames + put_count, count - put_count);
  }
  if (put_count == count) request_space(false);
  if (frames_.is_broken()) {
    error_.set_broken("the child published %llu taken bytes, which is invalid: %llu were submitted",
                      static_cast<unsigned long long>(load(indices_->taken)),
                      static_cast<unsigned long long>(frames_.end()));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (frames_.end() != published_) {
    published_ = frames_.end();
    publish(indices_->submitted, published_);
    engine::ring_published(connection_.child_bell);
  }
  return put_count;
}

// Check one frame. submit() sends the frames before an invalid frame, and fails only if the first
// frame is invalid.
bool RingParentEnd::is_sendable(const pto_frame& frame) {
  const uint64_t bytes = sizeof frame + uint64_t{frame.bytes};
  if (bytes > connection_.queue_bytes) {
    error_.set_refused("a frame of %llu bytes is too large: at most %u are possible (queue_bytes)",
                       static_cast<unsigned long long>(bytes), connection_.queue_bytes);
    return false;
  }
  if (frame.kind != PTO_FRAME_TASK && frame.kind != PTO_FRAME_CONTROL) {
    error_.set_refused("%u is not a kind of frame", frame.kind);
    return false;
  }
  return true;
}

int32_t RingParentEnd::put(const pto_frame_view* frames, int32_t count) {
  int32_t put_count = 0;
  for (; put_count < count; ++put_count) {
    const pto_frame& frame = *frames[put_count].frame;
    if (!is_sendable(frame) || !frames_.put(frame, frames[put_count].data, frame.bytes)) break;
    submitted_tasks_ += frame.kind == PTO_FRAME_TASK;
  }
  return put_count;
}

void RingParentEnd::request_space(bool wanted) {
  if (wanted == wants_space_) return;
  wants_space_ = wanted;
  publish(indices_->parent_wants_space, wanted ? 1u : 0u);
}

// --- Answers to the parent ----------------------------------------------------------------------

int32_t RingParentEnd::poll(pto_answer* answers, int32_t count) {
  if (error_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  free_reported();
  // Read the close flag before the indices, so that the reads below see all answers that were
  // written before the close.
  const bool is_closed = load(indices_->child_end) == static_cast<uint32_t>(End::kClosed);
  if (!refresh()) return PTO_ENDPOINT_PROTOCOL;
  int32_t reported = 0;
  if (!report_records(answers, count, reported))
    return reported > 0 ? reported : PTO_ENDPOINT_PROTOCOL;
  const bool has_more = has_waiting_ || answers_.has_more();
  if (!has_more && completed_ > reported_ && reported < count)
    report_successes(completed_, answers[reported++]);
  const bool is_all = !has_more && completed_ <= reported_;
  return reported == 0 && is_closed && is_all ? PTO_ENDPOINT_CLOSED : reported;
}

// Free the records that the previous poll reported. The caller no longer reads them.
void RingParentEnd::free_reported() {
  if (answers_.freed() == reported_index_) return;
  answers_.free_until(reported_index_);
  publish(indices_->polled, reported_index_);
  if (load(indices_->child_wants_space) != 0) engine::ring_published(connection_.child_bell);
}

// Read `completed`, and then the end of the records. So all records that the child wrote before it
// advanced `completed` are visible.
bool RingParentEnd::refresh() {
  const uint64_t completed = load(indices_->completed);
  if (completed < completed_ || completed > submitted_tasks_) {
    error_.set_broken(
        "the child published %llu ended task frames, which is invalid: %llu were submitted",
        static_cast<unsigned long long>(completed),
        static_cast<unsigned long long>(submitted_tasks_));
    return false;
  }
  completed_ = completed;
  if (answers_.refresh()) return true;
  error_.set_broken("the child published %llu answered bytes, which is not a valid index",
                    static_cast<unsigned long long>(load(indices_->answered)));
  return false;
}

bool RingParentEnd::report_records(pto_answer* answers, int32_t count, int32_t& reported) {
  while (reported < count) {
    if (!has_waiting_) {
      const auto found = answers_.next(waiting_);
      if (found == Reader<Record>::Found::kNothing) return true;
      if (found == Reader<Record>::Found::kBroken) {
        error_.set_broken("an answer has %u bytes of data, more than allowed or published",
                          waiting_.head.bytes);
        return false;
      }
      if (!is_valid(waiting_.head)) return false;
      has_waiting_ = true;
    }
    if (waiting_.head.succeeded > reported_) {
      report_successes(waiting_.head.succeeded, answers[reported++]);
    } else {
      report(waiting_, answers[reported++]);
      has_waiting_ = false;
    }
  }
  return true;
}

bool RingParentEnd::is_valid(const Record& record) {
  const bool is_completed = record.kind == PTO_ANSWER_COMPLETED;
  if ((!is_completed && record.kind != PTO_ANSWER_REPLY) || record.outcome > PTO_OUTCOME_SKIPPED) {
    error_.set_broken("an answer has the kind %u and the outcome %u", record.kind, record.outcome);
    return false;
  }
  const uint64_t before = record.succeeded > reported_ ? record.succeeded : reported_;
  if (before > submitted_tasks_ ||
      (is_completed && (record.number <= before || record.number > submitted_tasks_))) {
    error_.set_broken("an answer for task frame %llu follows task frame %llu, of %llu submitted",
                      static_cast<unsigned long long>(record.number),
                      static_cast<unsigned long long>(before),
                      static_cast<unsigned long long>(submitted_tasks_));
    return false;
  }
  return true;
}

void RingParentEnd::report(const Reader<Record>::Item& item, pto_answer& answer) {
  const Record& record = item.head;
  answer = {record.number, record.bytes == 0 ? nullptr : item.data, record.bytes, record.kind,
            record.outcome};
  if (record.kind == PTO_ANSWER_COMPLETED) reported_ = record.number;
  reported_index_ = item.end;
}

void RingParentEnd::report_successes(uint64_t number, pto_answer& answer) {
  answer = {number, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED};
  reported_ = number;
}

void RingParentEnd::close() {
  publish(indices_->parent_end, static_cast<uint32_t>(End::kClosed));
  engine::ring_published(connection_.child_bell);
}

}  // namespace pto::shm
