#include "remote/parent_port.hpp"

#include <algorithm>

#include "engine/interface.hpp"

namespace pto::hierarchy {

bool ParentPort::submit(const pto_frame& head, const std::string& data) {
  const pto_frame_view view{&head, data.data()};
  return checked(api_.submit(end_, &view, 1)) == 1;
}

std::vector<ReceivedAnswer> ParentPort::poll() {
  constexpr int32_t kBatch = 64;
  pto_answer answers[kBatch];
  std::vector<ReceivedAnswer> received;
  int32_t count = kBatch;
  while (count == kBatch) {
    count = checked(api_.poll(end_, answers, kBatch));
    for (int32_t i = 0; i < count; ++i) {
      const pto_answer& one = answers[i];
      std::string data(static_cast<const char*>(one.data), one.data ? one.bytes : 0);
      received.push_back({one.number, one.kind, one.outcome, std::move(data)});
    }
  }
  return received;
}

uint64_t ParentPort::succeeded(uint64_t count) const {
  const uint64_t last = completed();
  while (count < last && progress_.has_succeeded(0, count + 1)) count += 1;
  return count;
}

uint64_t ParentPort::started_age_ns() const {
  record().wants_clock.store(1, std::memory_order_relaxed);
  const uint64_t now_ns = engine::monotonic_ns();
  const uint64_t started_ns = record().started_ns.load(std::memory_order_relaxed);
  return started_ns == 0 ? 0 : now_ns - std::min(started_ns, now_ns);
}

void ParentPort::close() {
  if (end_) api_.close_parent(end_);
  end_ = nullptr;
}

int32_t ParentPort::checked(int32_t result) const {
  if (result >= 0) return result;
  if (result == PTO_ENDPOINT_CLOSED)
    throw Refusal(Refusal::Kind::kProtocol, "the child closed its end");
  throw Refusal(Refusal::Kind::kProtocol,
                "transport " + std::string(api_.name) + ": " + api_.parent_error(end_));
}

}  // namespace pto::hierarchy
