#include "child_end.hpp"

#include "pto/engine/bell.hpp"

namespace pto::shm {

ChildEnd::ChildEnd(const pto_connection& connection)
    : connection_(connection),
      indices_(indices_of(connection)),
      frames_(frames_of(connection), &indices_->submitted, connection.queue_bytes - kLine),
      answers_(answers_of(connection), &indices_->polled) {}

// --- Frames -------------------------------------------------------------------------------------

int32_t ChildEnd::receive(pto_frame_view* frames, int32_t count) {
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

bool ChildEnd::read_next() {
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

void ChildEnd::take(int32_t count) {
  const uint32_t visible = past_last_ - first_;
  if (count <= 0 || visible == 0) return;
  first_ += static_cast<uint32_t>(count) < visible ? static_cast<uint32_t>(count) : visible;
  const uint64_t end = visible_[(first_ - 1) % kVisible].end;
  frames_.free_until(end);
  publish(indices_->taken, end);
  if (load(indices_->parent_wants_space) != 0) engine::ring_published(connection_.parent_bell);
}

// --- Answers ------------------------------------------------------------------------------------

int32_t ChildEnd::answer(const pto_answer& answer) {
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

int32_t ChildEnd::put(const pto_answer& answer) {
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

void ChildEnd::request_space(bool wanted) {
  if (wanted == wants_space_) return;
  wants_space_ = wanted;
  publish(indices_->child_wants_space, wanted ? 1u : 0u);
}

void ChildEnd::close() {
  publish(indices_->child_end, static_cast<uint32_t>(End::kClosed));
  engine::ring_published(connection_.parent_bell);
}

}  // namespace pto::shm
