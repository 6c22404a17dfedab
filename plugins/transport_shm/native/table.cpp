// The function table that the core receives. Each entry calls one method of an end.

#include <cstring>
#include <new>

#include "ends.hpp"

using pto::shm::RingChildEnd;
using pto::shm::RingParentEnd;

struct pto_parent_end {
  RingParentEnd end;
};
struct pto_child_end {
  RingChildEnd end;
};

namespace {

uint64_t memory_needed(const pto_connection* connection) {
  return pto::shm::RingSizes(*connection).memory_bytes();
}

bool can_be_opened(const pto_connection& connection) {
  return connection.memory_bytes >= memory_needed(&connection) &&
         connection.queue_bytes >= sizeof(pto_frame);
}

template <class Opened>
Opened* open(const pto_connection* connection) {
  if (!can_be_opened(*connection)) return nullptr;
  return new (std::nothrow) Opened{decltype(Opened::end)(*connection)};
}

template <class Opened>
void close(Opened* opened) {
  opened->end.close();
  delete opened;
}

int32_t submit(pto_parent_end* parent, const pto_frame_view* frames, int32_t count) {
  return parent->end.submit(frames, count);
}

int32_t poll(pto_parent_end* parent, pto_answer* answers, int32_t count) {
  return parent->end.poll(answers, count);
}

int32_t receive(pto_child_end* child, pto_frame_view* frames, int32_t count) {
  return child->end.receive(frames, count);
}

void take(pto_child_end* child, int32_t count) {
  child->end.take(count);
}

int32_t answer(pto_child_end* child, const pto_answer* answer) {
  return child->end.answer(*answer);
}

template <class Opened>
const char* error(const Opened* opened) {
  return opened->end.error();
}

constexpr pto_transport_api kApi = {
    PTO_ABI_VERSION,
    PTO_TRANSPORT_SAME_ADDRESSES | PTO_TRANSPORT_IN_ORDER,
    "shm",
    memory_needed,
    open<pto_parent_end>,
    submit,
    poll,
    error<pto_parent_end>,
    close<pto_parent_end>,
    open<pto_child_end>,
    receive,
    take,
    answer,
    error<pto_child_end>,
    close<pto_child_end>,
};

}  // namespace

PTO_ABI_EXPORT const pto_transport_api* pto_transport_entry(const char* name) {
  return std::strcmp(name, kApi.name) == 0 ? &kApi : nullptr;
}
