#include "driver/child_control.hpp"

#include <memory>
#include <utility>

namespace pto::hierarchy {

void ChildControl::attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
                          uint32_t largest_frame_bytes, bool is_python) {
  const Role role(drive_.state(), Role::kAsks);
  if (drive_.flags().is_closed) return api->close_parent(end);
  role->core.link(child).attach(api, end, largest_frame_bytes);
  if (is_python) drive_.flags().calls_python = true;
}

void ChildControl::detach_all() {
  const Role role(drive_.state());
  for (const auto& link : role->core.links) link->detach();
}

void ChildControl::set_ready(int32_t child) {
  const Role role(drive_.state());
  if (drive_.flags().is_closed) return;
  role->exchange.set_ready(child);
  role->exchange.poll_and_dispatch();
}

void ChildControl::lose(int32_t child, int64_t cause, bool returns) {
  const Role role(drive_.state());
  if (drive_.flags().is_closed) return;
  role->exchange.lose(child, cause, returns);
  role->exchange.poll_and_dispatch();
  engine::ring(role->core.progress.parent_bell());
}

uint64_t ChildControl::control(int32_t child, std::string data) {
  const Role role(drive_.state());
  role->core.check_open();
  ChildLink& link = role->core.link(child);
  if (!link.is_attached()) {
    throw Refusal(Refusal::Kind::kProtocol,
                  "child " + std::to_string(child) + " has exited and accepts no control frame");
  }
  const size_t bytes = sizeof(pto_frame) + data.size();
  if (bytes > link.largest_frame_bytes()) {
    throw Refusal(Refusal::Kind::kCapacity, "a control frame has " + std::to_string(bytes) +
                                                " bytes, but the child accepts at most " +
                                                std::to_string(link.largest_frame_bytes()) +
                                                "; set a larger child_queue_bytes");
  }
  const uint64_t number = role->core.replies.expect();
  link.control(number, std::make_shared<const std::string>(std::move(data)));
  role->exchange.poll_and_dispatch();
  return number;
}

ReplyState ChildControl::reply(uint64_t number, uint64_t timeout_ns, std::string* data) {
  ReplyState state = ReplyState::kPending;
  drive_.state().refuse_inside();
  drive_.wait_until(
      [&](const Role& role) {
        state = role->core.replies.take(number, data);
        return state != ReplyState::kPending;
      },
      saturating_add(engine::monotonic_ns(), timeout_ns));
  return state;
}

}  // namespace pto::hierarchy
