// An oracle for the edges of a program: it computes them from the contract and sets of bytes. It
// shares no code with the runtime, and compares every new access with every earlier access.
//
// An access is a view of a frame (first byte, element, raw shape) with a tag. Accesses to one frame
// overlap if they share a byte. Accesses to different frames overlap if their byte hulls overlap. A
// live writer covers another access if it contains all bytes of that access. Between different
// frames, only a contiguous writer is known to do so, if its bytes enclose the other access's hull.
// A view without bytes is a key, and overlaps only keys with the same address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "pto/abi/tensor.h"

namespace edge_oracle {

// A view of memory. The dimensions are in memory order, the slowest first.
struct View {
  uint64_t base;
  uint64_t element;
  std::vector<uint64_t> raw;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> shapes;
};

struct Bytes {
  uint64_t first;
  std::vector<uint64_t> all;    // the addresses of all bytes, ascending; empty for a key
  std::vector<uint64_t> frame;  // identifies the frame: equal for equal frames

  explicit Bytes(const View& view) {
    uint64_t stride = view.element;
    first = view.base;
    std::vector<uint64_t> starts{view.base};
    for (size_t dim = view.raw.size(); dim-- > 0; stride *= view.raw[dim]) {
      first += view.offsets[dim] * stride;
      std::vector<uint64_t> next;
      for (uint64_t step = 0; step < view.shapes[dim]; ++step) {
        for (const uint64_t start : starts) {
          next.push_back(start + (view.offsets[dim] + step) * stride);
        }
      }
      starts = next;
    }
    for (const uint64_t start : starts) {
      for (uint64_t byte = 0; byte < view.element; ++byte) all.push_back(start + byte);
    }
    std::sort(all.begin(), all.end());
    frame_of(view);
  }

  bool is_key() const { return all.empty(); }
  uint64_t begin() const { return all.front(); }
  uint64_t end() const { return all.back() + 1; }
  bool is_contiguous() const { return all.size() == end() - begin(); }

 private:
  // Sets `frame` to the raw shape in bytes, without dimensions of size 1, and the address.
  void frame_of(const View& view) {
    for (const uint64_t size : view.raw) {
      if (size != 1) frame.push_back(size);
    }
    if (frame.empty()) frame.push_back(1);
    frame.back() *= view.element;
    frame.push_back(view.base);
  }
};

inline bool overlap(const Bytes& a, const Bytes& b) {
  if (a.is_key() || b.is_key()) return a.is_key() && b.is_key() && a.first == b.first;
  if (a.frame != b.frame) return a.begin() < b.end() && b.begin() < a.end();
  return std::find_first_of(a.all.begin(), a.all.end(), b.all.begin(), b.all.end()) != a.all.end();
}

inline bool covers(const Bytes& writer, const Bytes& other) {
  if (writer.is_key() || other.is_key()) return overlap(writer, other);
  if (writer.frame == other.frame) {
    return std::includes(writer.all.begin(), writer.all.end(), other.all.begin(), other.all.end());
  }
  return writer.is_contiguous() && writer.begin() <= other.begin() && other.end() <= writer.end();
}

// Pairs of a producer and a consumer, by the numbers that submit() received.
using Edges = std::set<std::pair<int64_t, int64_t>>;

struct Access {
  uint32_t tag;
  View view;
};

class Oracle {
 public:
  explicit Oracle(bool is_full) : is_full_(is_full) {}

  void submit(int64_t task, const std::vector<Access>& accesses) {
    for (const Access& access : accesses) look_up(task, access.tag, Bytes(access.view));
    for (const Access& access : accesses) remember(task, access.tag, Bytes(access.view));
  }

  void add_dep(int64_t from, int64_t to) { edges_.insert({from, to}); }

  const Edges& edges() const { return edges_; }

 private:
  struct Known {
    int64_t task;
    bool writes;
    Bytes bytes;
  };

  void look_up(int64_t task, uint32_t tag, const Bytes& bytes) {
    const bool reads = tag == PTO_TAG_INPUT || tag == PTO_TAG_INOUT;
    const bool replaces = tag == PTO_TAG_OUTPUT || tag == PTO_TAG_INOUT;
    for (const Known& known : known_) {
      const bool waits = known.writes ? reads || (is_full_ && replaces) : is_full_ && replaces;
      if (waits && overlap(known.bytes, bytes)) edges_.insert({known.task, task});
    }
  }

  void remember(int64_t task, uint32_t tag, const Bytes& bytes) {
    if (tag == PTO_TAG_NO_DEP) return;
    const bool writes = tag != PTO_TAG_INPUT;
    if (writes) {
      const auto is_covered = [&](const Known& known) { return covers(bytes, known.bytes); };
      known_.erase(std::remove_if(known_.begin(), known_.end(), is_covered), known_.end());
    }
    known_.push_back({task, writes, bytes});
  }

  const bool is_full_;
  std::vector<Known> known_;  // accesses that no later writer covers, in the order of submits
  Edges edges_;
};

}  // namespace edge_oracle
