// A transport for tests: two queues under a lock, in the memory of one process.
#pragma once

#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "pto/abi/endpoint.h"
#include "pto/engine/bell.hpp"

struct Packet {
  pto_frame head;
  std::vector<uint64_t> data;
};

struct Given {
  pto_answer head;
  std::vector<char> data;
};

// The two queues of a connection, placed in its memory.
struct Queues {
  std::mutex mutex;
  std::deque<Packet> frames;
  std::deque<Given> answers;
  std::vector<Given> shown;  // items for the parent, valid until the next poll
  pto_connection connection;
  bool is_closed = false;
};

struct pto_parent_end : Queues {};
struct pto_child_end : Queues {};

namespace queue_transport {

inline int32_t submit(pto_parent_end* end, const pto_frame_view* frames, int32_t count) {
  int32_t taken = 0;
  {
    const std::lock_guard lock(end->mutex);
    for (; taken < count && end->frames.size() < end->connection.queue_frames; ++taken) {
      Packet packet{*frames[taken].frame, {}};
      packet.data.resize((packet.head.bytes + 7) / 8);
      if (packet.head.bytes > 0)
        std::memcpy(packet.data.data(), frames[taken].data, packet.head.bytes);
      end->frames.push_back(std::move(packet));
    }
  }
  if (taken > 0) pto::engine::ring(end->connection.child_bell);
  return taken;
}

inline int32_t poll(pto_parent_end* end, pto_answer* answers, int32_t count) {
  const std::lock_guard lock(end->mutex);
  end->shown.clear();
  while (!end->answers.empty() && static_cast<int32_t>(end->shown.size()) < count) {
    end->shown.push_back(std::move(end->answers.front()));
    end->answers.pop_front();
  }
  int32_t got = 0;
  for (const Given& given : end->shown) {
    answers[got] = given.head;
    answers[got++].data = given.data.data();
  }
  return got == 0 && end->is_closed ? PTO_ENDPOINT_CLOSED : got;
}

inline int32_t receive(pto_child_end* end, pto_frame_view* frames, int32_t count) {
  const std::lock_guard lock(end->mutex);
  int32_t got = 0;
  for (const Packet& packet : end->frames) {
    if (got == count) break;
    frames[got++] = {&packet.head, packet.data.data()};
  }
  return got;
}

inline void take(pto_child_end* end, int32_t count) {
  const std::lock_guard lock(end->mutex);
  end->frames.erase(end->frames.begin(), end->frames.begin() + count);
}

inline int32_t answer(pto_child_end* end, const pto_answer* answer) {
  {
    const std::lock_guard lock(end->mutex);
    const char* data = static_cast<const char*>(answer->data);
    end->answers.push_back({*answer, std::vector<char>(data, data + answer->bytes)});
  }
  pto::engine::ring(end->connection.parent_bell);
  return 1;
}

inline const char* no_error(const pto_parent_end*) {
  return "";
}

inline void close_parent(pto_parent_end* end) {
  delete end;
}

inline const pto_transport_api& api() {
  static const pto_transport_api table = {
      PTO_ABI_VERSION, PTO_TRANSPORT_IN_ORDER, "queues", nullptr,  nullptr, &submit, &poll,
      &no_error,       &close_parent,          nullptr,  &receive, &take,   &answer, nullptr,
      nullptr};
  return table;
}

}  // namespace queue_transport
