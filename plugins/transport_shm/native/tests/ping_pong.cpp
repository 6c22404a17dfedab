// Measure the cost of a frame: in a stream between two threads, and as a round trip. One more
// figure is a lower bound for the round trip: two plain atomics instead of frames. Print minimum
// and median of several rounds.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "connection.hpp"
#include "pto/engine/bell.hpp"

namespace {

using pto::engine::monotonic_ns;

constexpr int kTurns = 11;
constexpr uint64_t kFrames = 400'000;
constexpr uint64_t kRounds = 100'000;
constexpr int32_t kBatch = 8;

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

template <class Turn>
void report(const char* what, Turn turn) {
  std::vector<double> ns;
  for (int i = 0; i < kTurns; ++i) ns.push_back(turn());
  std::sort(ns.begin(), ns.end());
  std::printf("%-58s %7.1f ns   (median %.1f)\n", what, ns.front(), ns[ns.size() / 2]);
}

// Stream frames with `bytes` of data, `kBatch` frames per call, until all are answered.
double stream(uint32_t bytes) {
  Connection connection(256, 1 << 16);
  std::atomic<bool> is_ready{false};
  std::thread child([&] {
    pin(1);
    pto_frame_view views[64];
    is_ready = true;
    for (uint64_t ended = 0; ended < kFrames;) {
      const int32_t visible = shm().receive(connection.child(), views, 64);
      if (visible == 0) {
        pto::engine::pause_core();
        continue;
      }
      shm().take(connection.child(), visible);
      ended += static_cast<uint64_t>(visible);
      const pto_answer done = completed(ended);
      shm().answer(connection.child(), &done);
    }
  });
  pin(0);
  while (!is_ready) sched_yield();
  const std::vector<uint8_t> data(bytes);
  pto_frame frame = task(1, bytes);
  pto_frame_view views[kBatch];
  std::fill_n(views, kBatch, pto_frame_view{&frame, data.data()});
  const uint64_t begin = monotonic_ns();
  pto_answer answer{};
  for (uint64_t sent = 0, answered = 0; answered < kFrames;) {
    const auto batch = static_cast<int32_t>(std::min<uint64_t>(kBatch, kFrames - sent));
    if (batch > 0) sent += static_cast<uint64_t>(shm().submit(connection.parent(), views, batch));
    if (sent - answered < 128 && sent < kFrames) continue;
    if (shm().poll(connection.parent(), &answer, 1) == 1) answered = answer.number;
  }
  const double ns = static_cast<double>(monotonic_ns() - begin) / kFrames;
  child.join();
  return ns;
}

// Run both ends in one thread. This measures only instructions, without cache traffic.
double alone(uint32_t bytes) {
  Connection connection(256, 1 << 16);
  const std::vector<uint8_t> data(bytes);
  pto_frame frame = task(1, bytes);
  pto_frame_view views[kBatch];
  std::fill_n(views, kBatch, pto_frame_view{&frame, data.data()});
  const uint64_t begin = monotonic_ns();
  for (uint64_t ended = 0; ended < kFrames; ended += kBatch) {
    shm().submit(connection.parent(), views, kBatch);
    pto_frame_view visible[kBatch];
    shm().take(connection.child(), shm().receive(connection.child(), visible, kBatch));
    pto_answer done = completed(ended + kBatch);
    shm().answer(connection.child(), &done);
    shm().poll(connection.parent(), &done, 1);
  }
  return static_cast<double>(monotonic_ns() - begin) / kFrames;
}

double there_and_back() {
  Connection connection(4, 4096);
  std::thread child([&] {
    pin(1);
    pto_frame_view view{};
    for (uint64_t n = 1; n <= kRounds; ++n) {
      while (shm().receive(connection.child(), &view, 1) == 0) pto::engine::pause_core();
      shm().take(connection.child(), 1);
      const pto_answer done = completed(n);
      shm().answer(connection.child(), &done);
    }
  });
  pin(0);
  const uint8_t data[64] = {};
  const pto_frame frame = task(1, sizeof data);
  const pto_frame_view view{&frame, data};
  pto_answer answer{};
  const uint64_t begin = monotonic_ns();
  for (uint64_t n = 1; n <= kRounds; ++n) {
    shm().submit(connection.parent(), &view, 1);
    while (shm().poll(connection.parent(), &answer, 1) == 0) pto::engine::pause_core();
  }
  const double ns = static_cast<double>(monotonic_ns() - begin) / kRounds;
  child.join();
  return ns;
}

double bare_there_and_back() {
  alignas(128) static std::atomic<uint64_t> to{0};
  alignas(128) static std::atomic<uint64_t> from{0};
  to = from = 0;
  std::thread child([&] {
    pin(1);
    for (uint64_t n = 1; n <= kRounds; ++n) {
      while (to.load() != n) pto::engine::pause_core();
      from.store(n);
    }
  });
  pin(0);
  const uint64_t begin = monotonic_ns();
  for (uint64_t n = 1; n <= kRounds; ++n) {
    to.store(n);
    while (from.load() != n) pto::engine::pause_core();
  }
  const double ns = static_cast<double>(monotonic_ns() - begin) / kRounds;
  child.join();
  return ns;
}

}  // namespace

int main() {
  report("a frame without data, both sides in one thread", [] { return alone(0); });
  report("a frame with 64 bytes, both sides in one thread", [] { return alone(64); });
  report("a frame without data, streamed and answered", [] { return stream(0); });
  report("a frame with 64 bytes, streamed and answered", [] { return stream(64); });
  report("a frame with 180 bytes, streamed and answered", [] { return stream(180); });
  report("round trip: a frame and its answer, spinning", there_and_back);
  report("lower bound: round trip of two plain atomics", bare_there_and_back);
}
