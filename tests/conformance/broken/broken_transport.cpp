// A working transport with one defect, which the environment variable PTO_BREAK names. It forwards
// each call to the library PTO_WORKING_LIBRARY.

#include <dlfcn.h>
#include <fcntl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "pto/abi/endpoint.h"

#define DEFECTS(X)              \
  X(nothing)                    \
  X(knows_every_name)           \
  X(claims_less)                \
  X(asks_for_too_little)        \
  X(does_not_ring)              \
  X(rings_its_own_bell)         \
  X(takes_at_once)              \
  X(gives_room_early)           \
  X(loses_a_frame)              \
  X(repeats_a_frame)            \
  X(swaps_frames)               \
  X(cuts_data)                  \
  X(forgets_a_member)           \
  X(merges_a_failure)           \
  X(swaps_answers)              \
  X(repeats_an_answer)          \
  X(is_never_full)              \
  X(holds_less)                 \
  X(loses_answers_when_full)    \
  X(refuses_the_largest)        \
  X(takes_what_is_too_large)    \
  X(says_no_words)              \
  X(waits_for_frames)           \
  X(forgets_what_was_sent)      \
  X(never_says_closed)          \
  X(leaves_a_descriptor)        \
  X(starts_a_thread)            \
  X(believes_lengths)           \
  X(remembers_an_earlier_child) \
  X(mixes_connections)
#include "defect.hpp"

namespace {

const pto_transport_api& working() {
  static const pto_transport_api* const api = [] {
    void* library = dlopen(PTO_WORKING_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void* entry = dlsym(library, PTO_TRANSPORT_ENTRY);
    return reinterpret_cast<pto_transport_entry_fn>(entry)(PTO_WORKING_NAME);
  }();
  return *api;
}

struct Parent {
  pto_connection connection;
  pto_parent_end* end;
  uint64_t submitted = 0;
  uint64_t polls = 0;
  bool is_second = false;
};

struct Child {
  pto_connection connection;
  pto_child_end* end;
  uint64_t answered = 0;
  bool is_held = false;  // a failure is held back until the next answer
  pto_answer held{};
  std::vector<char> data{};
};

int opened = 0;
// number of frames that were submitted and not yet received; counted only if both ends are in one
// process
uint32_t on_their_way = 0;
Parent* newest = nullptr;

Parent* parent(pto_parent_end* end) {
  return reinterpret_cast<Parent*>(end);
}
const Parent* parent(const pto_parent_end* end) {
  return reinterpret_cast<const Parent*>(end);
}
Child* child(pto_child_end* end) {
  return reinterpret_cast<Child*>(end);
}
const Child* child(const pto_child_end* end) {
  return reinterpret_cast<const Child*>(end);
}

uint64_t memory_needed(const pto_connection* connection) {
  return working().memory_needed(connection) - (breaks(Defect::asks_for_too_little) ? 4096 : 0);
}

pto_connection widened(const pto_connection& connection) {
  pto_connection wide = connection;
  wide.memory_bytes = working().memory_needed(&connection);
  return wide;
}

pto_parent_end* open_parent(const pto_connection* connection) {
  if (breaks(Defect::leaves_a_descriptor)) (void)open("/dev/null", O_RDONLY);
  if (breaks(Defect::starts_a_thread))
    std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach();
  const pto_connection wide = widened(*connection);
  auto* made = new Parent{*connection, working().open_parent(&wide)};
  made->is_second = opened++ > 0;
  newest = made;
  return reinterpret_cast<pto_parent_end*>(made);
}

// Sends a frame `times` times, changed by the defect; returns the result of the last submit.
int32_t send(Parent* to, const pto_frame_view& view, int32_t times) {
  pto_frame frame = *view.frame;
  std::vector<char> data(static_cast<const char*>(view.data),
                         static_cast<const char*>(view.data) + frame.bytes);
  if (breaks(Defect::cuts_data) && frame.bytes > 0) frame.bytes -= 1;
  if (breaks(Defect::forgets_a_member)) frame.config = 0;
  const pto_frame_view changed{&frame, data.data()};
  int32_t taken = 0;
  for (int32_t i = 0; i < times; ++i) taken = working().submit(to->end, &changed, 1);
  return taken;
}

int32_t submit_changed(Parent* to, const pto_frame_view* views, int32_t count) {
  const uint32_t limit = to->connection.queue_bytes - sizeof(pto_frame);
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t number = to->submitted + 1;
    int32_t times = 1;
    if (number % 50 == 0)
      times = breaks(Defect::loses_a_frame) ? 0 : breaks(Defect::repeats_a_frame) ? 2 : 1;
    if (breaks(Defect::holds_less) && on_their_way + 1 >= to->connection.queue_frames && number > 1)
      return i;
    if (breaks(Defect::refuses_the_largest) && views[i].frame->bytes == limit) return i;
    if (breaks(Defect::takes_what_is_too_large) && views[i].frame->bytes > limit) continue;
    const int32_t taken = times == 0 ? 1 : send(to, views[i], times);
    if (taken < 0) return i > 0 ? i : taken;
    if (taken == 0 && !breaks(Defect::is_never_full)) return i;
    to->submitted += 1;
    on_their_way += 1;
  }
  return count;
}

int32_t submit(pto_parent_end* end, const pto_frame_view* views, int32_t count) {
  Parent* to = breaks(Defect::mixes_connections) ? newest : parent(end);
  pto_bell* bell = to->connection.child_bell;
  const uint32_t sleepers = bell->sleepers;
  if (breaks(Defect::does_not_ring)) bell->sleepers = 0;
  if (breaks(Defect::rings_its_own_bell)) to->connection.parent_bell->rung += 1;
  int32_t taken;
  if (breaks(Defect::swaps_frames) && count >= 2) {
    std::vector<pto_frame_view> swapped(views, views + count);
    std::swap(swapped[0], swapped[1]);
    taken = submit_changed(to, swapped.data(), count);
  } else if (breaks(Defect::nothing)) {
    taken = working().submit(to->end, views, count);
  } else {
    taken = submit_changed(to, views, count);
  }
  if (breaks(Defect::does_not_ring)) bell->sleepers = sleepers;
  if (breaks(Defect::never_says_closed) && taken == PTO_ENDPOINT_CLOSED) return 0;
  return taken;
}

int32_t poll(pto_parent_end* end, pto_answer* answers, int32_t count) {
  Parent* from = parent(end);
  if (breaks(Defect::remembers_an_earlier_child) && from->is_second && from->polls++ == 0) {
    answers[0] = {1, nullptr, 0, PTO_ANSWER_REPLY, 0};
    return 1;
  }
  int32_t got = working().poll(from->end, answers, count);
  if (breaks(Defect::gives_room_early) && got > 0) (void)working().poll(from->end, answers, 0);
  if (breaks(Defect::swaps_answers) && got > 1) std::swap(answers[0], answers[1]);
  if (breaks(Defect::repeats_an_answer) && got > 0 && got < count && ++from->polls % 7 == 0) {
    answers[got] = answers[got - 1];
    ++got;
  }
  if (breaks(Defect::never_says_closed) && got == PTO_ENDPOINT_CLOSED) return 0;
  return got;
}

const char* parent_error(const pto_parent_end* end) {
  return breaks(Defect::says_no_words) ? "" : working().parent_error(parent(end)->end);
}

void close_parent(pto_parent_end* end) {
  working().close_parent(parent(end)->end);
  delete parent(end);
}

pto_child_end* open_child(const pto_connection* connection) {
  const pto_connection wide = widened(*connection);
  return reinterpret_cast<pto_child_end*>(new Child{*connection, working().open_child(&wide)});
}

// Uses the submitted count as an offset, like a transport that does not check it.
void follow(const Child& from) {
  uint64_t submitted;
  std::memcpy(&submitted, from.connection.memory, sizeof submitted);
  if (submitted > 0) (void)*(static_cast<volatile char*>(from.connection.memory) + submitted);
}

int32_t receive(pto_child_end* end, pto_frame_view* views, int32_t count) {
  Child* from = child(end);
  if (breaks(Defect::believes_lengths)) follow(*from);
  int32_t got = working().receive(from->end, views, count);
  while (breaks(Defect::waits_for_frames) && got == 0)
    got = working().receive(from->end, views, count);
  if (breaks(Defect::takes_at_once) && got > 0) working().take(from->end, got);
  if (breaks(Defect::never_says_closed) && got == PTO_ENDPOINT_CLOSED) return 0;
  if (breaks(Defect::forgets_what_was_sent) && got > 0) {
    // Checks whether the parent closed before it checks for received frames.
    const pto_answer refused{0, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SUCCEEDED};
    if (working().answer(from->end, &refused) == PTO_ENDPOINT_CLOSED) return PTO_ENDPOINT_CLOSED;
  }
  return got;
}

void take(pto_child_end* end, int32_t count) {
  on_their_way -= static_cast<uint32_t>(count);
  if (!breaks(Defect::takes_at_once)) working().take(child(end)->end, count);
}

int32_t answer(pto_child_end* end, const pto_answer* given) {
  Child* from = child(end);
  if (breaks(Defect::merges_a_failure)) {
    const bool is_task = given->kind == PTO_ANSWER_COMPLETED;
    const bool is_success = is_task && given->outcome == PTO_OUTCOME_SUCCEEDED;
    if (from->is_held && !is_success) {
      const int32_t status = working().answer(from->end, &from->held);
      if (status != 1) return status;
    }
    // the failure is lost: this success also reports the failed frame as successful
    from->is_held = false;
    if (is_task && given->outcome == PTO_OUTCOME_FAILED && ++from->answered <= 50) {
      const auto* data = static_cast<const char*>(given->data);
      from->data.assign(data, data + given->bytes);
      from->held = *given;
      from->held.data = from->data.data();
      from->is_held = true;
      return 1;
    }
  }
  const int32_t status = working().answer(from->end, given);
  return breaks(Defect::loses_answers_when_full) && status == 0 ? 1 : status;
}

const char* child_error(const pto_child_end* end) {
  return breaks(Defect::says_no_words) ? "" : working().child_error(child(end)->end);
}

void close_child(pto_child_end* end) {
  working().close_child(child(end)->end);
  delete child(end);
}

}  // namespace

PTO_ABI_EXPORT const pto_transport_api* pto_transport_entry(const char* name) {
  static pto_transport_api api = {
      PTO_ABI_VERSION,
      working().capabilities,
      "broken",
      memory_needed,
      open_parent,
      submit,
      poll,
      parent_error,
      close_parent,
      open_child,
      receive,
      take,
      answer,
      child_error,
      close_child,
  };
  if (breaks(Defect::claims_less)) api.capabilities = PTO_TRANSPORT_IN_ORDER;
  const bool is_known = std::strcmp(name, "broken") == 0 || breaks(Defect::knows_every_name);
  return is_known ? &api : nullptr;
}
