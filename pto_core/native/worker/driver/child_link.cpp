#include "driver/child_link.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace pto::worker {
namespace {

constexpr int32_t kLinkBatch = 64;

}  // namespace

ChildLink::ChildLink(const ChildConfiguration& configuration)
    : configuration(configuration),
      ring_(std::bit_ceil(static_cast<size_t>(configuration.window))),
      mask_(ring_.size() - 1) {}

void ChildLink::attach(const pto_transport_api* api, pto_parent_end* end,
                       uint32_t largest_frame_bytes) {
  detach();
  api_ = api;
  end_ = end;
  is_broken_ = is_distrusted_ = false;
  connection_ += 1;
  largest_frame_bytes_ = largest_frame_bytes;
  base_ = sent_;
  configs_sent = 0;
}

void ChildLink::detach() {
  if (end_) api_->close_parent(end_);
  end_ = nullptr;
}

void ChildLink::send(uint64_t count, const QueuedFrame& frame) {
  ring_[count & mask_] = frame;
  sent_ = count;
}

void ChildLink::control(uint64_t number, std::shared_ptr<const std::string> data) {
  controls_.push_back({number, sent_, std::move(data)});
  awaited.push_back(number);
}

// Frames are sent in order: a control frame is sent only after the transport has accepted the task
// frames before it.
int32_t ChildLink::fill(const FrameSource& source, pto_frame* heads, pto_frame_view* views) const {
  uint64_t count = taken_;
  auto control = controls_.begin();
  int32_t filled = 0;
  while (filled < kLinkBatch) {
    if (control != controls_.end() && control->after == count) {
      pto_frame& head = heads[filled];
      head = {};
      head.required_child = static_cast<int32_t>(kNone);
      head.number = control->number;
      head.bytes = static_cast<uint32_t>(control->data->size());
      head.kind = PTO_FRAME_CONTROL;
      views[filled] = {&head, control->data->data()};
      ++control;
    } else if (count < sent_) {
      count += 1;
      views[filled] = source.view_of(frame(count), configuration.receives_use, &heads[filled]);
    } else {
      break;
    }
    filled += 1;
  }
  return filled;
}

bool ChildLink::flush(const FrameSource& source) {
  pto_frame heads[kLinkBatch];
  pto_frame_view views[kLinkBatch];
  while (end_ && !is_broken_ && has_unsent()) {
    const int32_t filled = fill(source, heads, views);
    const int32_t taken = api_->submit(end_, views, filled);
    if (taken < 0) return note_broken(taken, "submit");
    for (int32_t i = 0; i < taken; ++i) {
      if (heads[i].kind == PTO_FRAME_CONTROL)
        controls_.pop_front();
      else
        taken_ += 1;
    }
    if (taken < filled) break;
  }
  return true;
}

int32_t ChildLink::poll(pto_answer* answers, int32_t count) {
  if (!end_ || is_broken_) return 0;
  const int32_t got = api_->poll(end_, answers, count);
  if (got >= 0) return got;
  note_broken(got, "poll");
  return -1;
}

bool ChildLink::note_broken(int32_t status, const char* what) {
  is_broken_ = true;
  const char* message = status == PTO_ENDPOINT_CLOSED ? "the child closed its end" : nullptr;
  if (!message) message = api_->parent_error(end_);
  error_ =
      std::string(what) + ": " +
      (message && *message ? message : "the transport reported a protocol error without a message");
  return false;
}

std::vector<uint64_t> ChildLink::lose() {
  completed_ = taken_ = sent_;
  withdrawn_ = 0;
  controls_.clear();
  presence.is_ready = false;
  return std::exchange(awaited, {});
}

}  // namespace pto::worker
