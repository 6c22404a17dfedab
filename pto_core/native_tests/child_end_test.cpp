// Tests how the child's end of a connection waits for frames, with a transport that never delivers
// a frame.
#include "child/child_end.hpp"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

// Counts the calls of receive().
struct pto_child_end {
  int receives = 0;
};

namespace {

using namespace pto::worker;

int32_t receive(pto_child_end* end, pto_frame_view*, int32_t) {
  end->receives += 1;
  return 0;
}

pto_transport_api quiet() {
  pto_transport_api api{};
  api.name = "quiet";
  api.receive = receive;
  api.close_child = [](pto_child_end*) {};
  return api;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

// The only child of a Worker, with no task to run.
struct IdleChild {
  std::vector<Line> memory{ProgressTable::bytes_needed(1) / sizeof(Line) + 1};
  ProgressTable progress = ProgressTable::create(memory.data(), 1, 2);
  pto_transport_api api = quiet();
  pto_child_end raw;
  ChildEnd end{api, &raw, progress, 0, false};
};

TEST(a_wait_after_an_idle_wait_sleeps_at_once) {
  constexpr int kReceivesOfASleep = 3;
  constexpr int kWaits = 4;
  IdleChild child;
  CHECK(!child.end.wait_for_frames());
  child.raw.receives = 0;
  for (int i = 0; i < kWaits; ++i) CHECK(!child.end.wait_for_frames());
  CHECK_EQUAL(child.raw.receives, kWaits * kReceivesOfASleep);
}

TEST(a_ring_ends_a_wait_even_without_a_frame) {
  IdleChild child;
  std::atomic<bool> is_over{false};
  std::thread ringing([&] {
    while (!is_over) {
      pto::engine::ring_published(&child.progress.child(0).bell);
      std::this_thread::yield();
    }
  });
  for (int i = 0; !child.end.wait_for_frames(); ++i) CHECK(i < 600);
  is_over = true;
  ringing.join();
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
