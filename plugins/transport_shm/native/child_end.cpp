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
  if (behind_ - first_ < wanted && !words_.is_broken()) {
    // First: what was submitted before the parent closed is then seen below.
    const bool is_closed = load(indices_->parent_end) == static_cast<uint32_t>(End::kClosed);
    if (!frames_.look()) {
      words_.break_off("the parent says that it has submitted %llu bytes, which do not fit",
                       static_cast<unsigned long long>(load(indices_->submitted)));
    }
    while (behind_ - first_ < wanted && behind_ - first_ < kShown && show_more()) {
    }
    if (behind_ == first_ && is_closed && !words_.is_broken()) return PTO_ENDPOINT_CLOSED;
  }
  if (behind_ == first_ && words_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  const uint32_t shown = behind_ - first_ < wanted ? behind_ - first_ : wanted;
  for (uint32_t i = 0; i < shown; ++i) {
    const Item& item = shown_[(first_ + i) % kShown];
    frames[i] = {&item.head, item.data};
  }
  return static_cast<int32_t>(shown);
}

bool ChildEnd::show_more() {
  if (words_.is_broken()) return false;
  Item& item = shown_[behind_ % kShown];
  const auto found = frames_.next(item);
  if (found == Reader<pto_frame>::Found::kNothing) return false;
  const uint16_t kind = item.head.kind;
  if (found == Reader<pto_frame>::Found::kBroken) {
    words_.break_off("a frame has %u bytes of data, which do not fit", item.head.bytes);
  } else if (kind != PTO_FRAME_TASK && kind != PTO_FRAME_CONTROL) {
    words_.break_off("a frame has the kind %u", kind);
  } else {
    ++behind_;
    return true;
  }
  return false;
}

void ChildEnd::take(int32_t count) {
  const uint32_t shown = behind_ - first_;
  if (count <= 0 || shown == 0) return;
  first_ += static_cast<uint32_t>(count) < shown ? static_cast<uint32_t>(count) : shown;
  const uint64_t end = shown_[(first_ - 1) % kShown].end;
  frames_.free_until(end);
  publish(indices_->taken, end);
  if (load(indices_->parent_wants_room) != 0) engine::ring_published(connection_.parent_bell);
}

// --- Answers ------------------------------------------------------------------------------------

int32_t ChildEnd::answer(const pto_answer& answer) {
  if (answers_.is_broken()) return PTO_ENDPOINT_PROTOCOL;
  if (load(indices_->parent_end) == static_cast<uint32_t>(End::kClosed)) return PTO_ENDPOINT_CLOSED;
  const bool is_completed = answer.kind == PTO_ANSWER_COMPLETED;
  if (is_completed && answer.number <= ended_) {
    words_.refuse("task frame %llu is answered after %llu",
                  static_cast<unsigned long long>(answer.number),
                  static_cast<unsigned long long>(ended_));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (is_completed && answer.outcome == PTO_OUTCOME_SUCCEEDED && answer.bytes == 0) {
    succeeded_ = answer.number;
    publish(indices_->completed, succeeded_);
  } else {
    const int32_t given = put(answer);
    if (given != 1) return given;
  }
  if (is_completed) ended_ = answer.number;
  engine::ring_published(connection_.parent_bell);
  return 1;
}

int32_t ChildEnd::put(const pto_answer& answer) {
  if (uint64_t{answer.bytes} + kLine > connection_.queue_bytes) {
    words_.refuse("an answer with %u bytes of data is too large: at most %llu", answer.bytes,
                  static_cast<unsigned long long>(connection_.queue_bytes - kLine));
    return PTO_ENDPOINT_PROTOCOL;
  }
  const Record record{answer.number, succeeded_, answer.bytes, answer.kind, answer.outcome, {}};
  bool is_put = answers_.put(record, answer.data, answer.bytes);
  if (!is_put) {
    // The parent may have made room before it could see that somebody waits for it.
    ask_for_room(true);
    is_put = answers_.put(record, answer.data, answer.bytes);
  }
  if (answers_.is_broken()) {
    words_.break_off("the parent says that it has polled %llu bytes of %llu that were given",
                     static_cast<unsigned long long>(load(indices_->polled)),
                     static_cast<unsigned long long>(answers_.end()));
    return PTO_ENDPOINT_PROTOCOL;
  }
  if (!is_put) return 0;
  ask_for_room(false);
  publish(indices_->given, answers_.end());
  return 1;
}

void ChildEnd::ask_for_room(bool wanted) {
  if (wanted == wants_room_) return;
  wants_room_ = wanted;
  publish(indices_->child_wants_room, wanted ? 1u : 0u);
}

void ChildEnd::close() {
  publish(indices_->child_end, static_cast<uint32_t>(End::kClosed));
  engine::ring_published(connection_.parent_bell);
}

}  // namespace pto::shm
