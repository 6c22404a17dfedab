// The children: their frames in flight, and whether they accept frames.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/interface.hpp"

namespace pto::hierarchy {

enum class ChildState : uint8_t { kExpected, kReady, kLost };
constexpr const char* kChildStateNames[] = {"EXPECTED", "READY", "LOST"};

// A frame that was sent and has not completed yet.
struct InFlight {
  uint32_t slot;
  uint32_t member;
  int32_t required_child;  // kNone: nothing is required
  uint64_t required_count;
};

// A child, as the engine sees it. Invariant: the frames in flight have the numbers `completed` + 1
// to `sent`.
class Child {
 public:
  Child(int32_t number, const ChildConfiguration& configuration)
      : number(number), kind(configuration.kind), window(configuration.window) {
    uint64_t frames = 1;
    while (frames < window) frames *= 2;
    frames_.resize(frames);
  }

  const int32_t number;
  const Kind kind;
  const uint32_t window;
  ChildState state = ChildState::kExpected;
  uint64_t reserved = 0;  // number of the dispatch pass in which the child was reserved for a group
  uint32_t early = 0;     // number of frames in flight that have a requirement
  uint64_t sent = 0;
  uint64_t completed = 0;  // never decreases; frames lost with the child count as completed
  int64_t cause = kNone;   // cause of the child's last loss

  uint64_t in_flight() const { return sent - completed; }
  bool has_space() const { return state == ChildState::kReady && in_flight() < window; }
  InFlight& frame(uint64_t count) { return frames_[count & (frames_.size() - 1)]; }
  const InFlight& frame(uint64_t count) const { return frames_[count & (frames_.size() - 1)]; }

  // Add a frame in flight. Fewer frames than `window` must be in flight.
  uint64_t send(const InFlight& in_flight) {
    early += in_flight.required_child != kNone;
    frame(++sent) = in_flight;
    return sent;
  }

  // Remove the oldest frame in flight.
  const InFlight& complete() {
    const InFlight& oldest = frame(++completed);
    early -= oldest.required_child != kNone;
    if (!deadlines_.empty()) forget_deadlines();
    return oldest;
  }

  // Mark all frames in flight as lost. Their data stays readable until the next frame is sent.
  void lose() {
    if (sent > completed) lost_.push_back({completed + 1, sent});
    completed = sent;
    early = 0;
  }

  // Return whether the frame was lost with the child.
  bool has_lost(uint64_t count) const {
    for (const Range& range : lost_) {
      if (range.first <= count && count <= range.last) return true;
    }
    return false;
  }

  // Return the cause of the timeout if the frame exceeded its time limit, otherwise return
  // `otherwise`.
  int64_t deadline(uint64_t count, int64_t otherwise) const {
    for (const Deadline& each : deadlines_) {
      if (each.count == count) return each.cause;
    }
    return otherwise;
  }

  // Return false if the frame has already exceeded its time limit.
  bool add_deadline(uint64_t count, int64_t cause) {
    for (const Deadline& each : deadlines_) {
      if (each.count == count) return false;
    }
    deadlines_.push_back({count, cause});
    return true;
  }

  void forget_deadlines() {
    std::erase_if(deadlines_, [&](const Deadline& each) { return each.count <= completed; });
  }

 private:
  struct Range {
    uint64_t first;
    uint64_t last;
  };
  struct Deadline {
    uint64_t count;
    int64_t cause;
  };

  std::vector<InFlight> frames_;  // the number of elements is a power of 2
  std::vector<Range> lost_;       // the frames that were in flight at each loss
  std::vector<Deadline> deadlines_;
};

// All children, by number and by kind.
class Children {
 public:
  explicit Children(const std::vector<ChildConfiguration>& configurations) {
    for (const ChildConfiguration& each : configurations) {
      all_.emplace_back(static_cast<int32_t>(all_.size()), each);
    }
    for (Child& child : all_) of_kind_[static_cast<uint8_t>(child.kind)].push_back(&child);
  }

  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  // Return a child by a number that comes from the engine, so it is valid.
  Child& operator[](int64_t number) { return all_[static_cast<uint64_t>(number)]; }
  const Child& operator[](int64_t number) const { return all_[static_cast<uint64_t>(number)]; }
  std::vector<Child>& all() { return all_; }
  const std::vector<Child>& all() const { return all_; }
  // Return the children that run tasks of this kind, in ascending order.
  const std::vector<Child*>& of_kind(uint8_t kind) const { return of_kind_[kind]; }

  // Return a child by a number that comes from a report, so it is checked.
  Child& reported(int32_t number) {
    if (number < 0 || static_cast<uint64_t>(number) >= all_.size()) {
      throw Refusal(Refusal::Kind::kProtocol, "child " + std::to_string(number) +
                                                  " does not exist; there are " +
                                                  std::to_string(all_.size()) + " children");
    }
    return all_[static_cast<uint64_t>(number)];
  }

 private:
  std::vector<Child> all_;
  std::vector<Child*> of_kind_[2];
};

}  // namespace pto::hierarchy
