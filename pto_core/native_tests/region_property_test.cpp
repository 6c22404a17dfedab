// The region index, compared with a model that stores each region as a set of bytes.
//
// Arguments: a seed and a number of rounds. A failure prints the seed of its round.
//
// Invariant of this file: Regions of one frame overlap exactly. Regions of different frames overlap
// by byte hull, which is exact if both are contiguous, and labelled otherwise.
#include <algorithm>
#include <bitset>
#include <map>
#include <random>
#include <string>

#include "check.hpp"
#include "heap_memory.hpp"
#include "pto/engine/region_index.hpp"

namespace {

using namespace pto::engine;

constexpr uint64_t kMemory = uint64_t{1} << 33;  // address of the first byte
constexpr uint64_t kBytes = 2048;
constexpr uint64_t kHeap = 1024;  // size of the first part, which is a heap whose buffers are freed
                                  // and reused
using Bytes = std::bitset<kBytes>;

struct Buffer {
  uint64_t at;
  uint64_t element;
  int64_t tag;
  std::vector<uint64_t> raw;  // in memory order, slowest first

  uint64_t bytes() const {
    uint64_t product = element;
    for (uint64_t size : raw) product *= size;
    return product;
  }
};

// What the model knows about a view.
struct View {
  // address, tag and shape, without dimensions of size 1; empty for a key
  std::vector<uint64_t> frame;
  Bytes bytes;
  uint64_t begin = 0;
  uint64_t end = 0;
  Region region;

  bool is_key() const { return begin == end; }
  bool is_contiguous() const { return bytes.count() == end - begin; }
};

struct Known {
  View view;
  RegionState state;
};

bool overlap(const View& a, const View& b) {
  if (a.is_key() || b.is_key()) return a.is_key() && b.is_key() && a.begin == b.begin;
  if (a.frame == b.frame) return (a.bytes & b.bytes).any();
  return a.begin < b.end && b.begin < a.end;
}

bool covers(const View& a, const View& b) {
  if (a.is_key() || b.is_key()) return overlap(a, b);
  if (a.frame == b.frame) return (b.bytes & ~a.bytes).none();
  return a.is_contiguous() && a.begin <= b.begin && b.end <= a.end;
}

bool is_conservative(const View& a, const View& b) {
  if (a.is_key() || a.frame == b.frame) return false;
  if (a.is_contiguous() && b.is_contiguous()) return false;
  return !(a.is_contiguous() && covers(a, b)) && !(b.is_contiguous() && covers(b, a));
}

class Round {
 public:
  explicit Round(uint64_t seed) : random_(seed) {
    CHECK(index_.create(memory_.memory(), kCapacity));
  }
  ~Round() { index_.destroy(); }

  // Run random steps. If the index and the model differ, print a message and return false.
  bool run(int steps) {
    restart();
    for (int step = 0; step < steps; ++step) {
      if (one_in(300)) restart();
      if (one_in(12)) die();
      if (one_in(10)) allocate();
      if (one_in(15)) buffers_[below(buffers_.size())] = external();
      if (!act()) return false;
    }
    return true;
  }

  const std::string& story() const { return story_; }

 private:
  static constexpr uint32_t kCapacity = 64;
  static constexpr int64_t kNowhere = -2;

  struct Policy {
    Round& round;
    RegionState state(uint32_t id) const { return round.known_[id].state; }
    void removed(uint32_t id, RegionRemoval why) {
      CHECK((why == RegionRemoval::kStale) == (state(id) != RegionState::kLive));
      round.inside_.erase(id);
    }
  };

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool one_in(uint64_t chances) { return below(chances) == 0; }

  void restart() {
    index_.restart();
    known_.clear();
    heaps_.clear();
    recent_.clear();
    inside_.clear();
    buffers_.clear();
    while (buffers_.size() < 5) buffers_.push_back(external());
  }

  std::vector<uint64_t> shape(uint64_t elements) {
    std::vector<uint64_t> raw(1 + below(5));
    for (uint64_t& size : raw) {
      const uint64_t limit = std::min<uint64_t>(elements, raw.size() == 1 ? 512 : 16);
      size = 1 + below(limit);
      elements /= size;
    }
    std::shuffle(raw.begin(), raw.end(), random_);
    return raw;
  }

  Buffer external() {
    if (!buffers_.empty() && one_in(2)) return inside(buffers_[below(buffers_.size())]);
    Buffer buffer{kHeap + below(kBytes - kHeap - 8), uint64_t{1} << below(4), -1, {}};
    if (one_in(2)) buffer.at &= ~uint64_t{63};
    buffer.raw = shape((kBytes - buffer.at) / buffer.element);
    return buffer;
  }

  // Return a buffer with another shape over the memory of `buffer`, or over a part of it.
  Buffer inside(Buffer buffer) {
    const uint64_t end = buffer.at + buffer.bytes();
    if (one_in(2)) buffer.at += below(end - buffer.at);
    buffer.element = uint64_t{1} << below(4);
    while (buffer.element > end - buffer.at) buffer.element /= 2;
    buffer.raw = shape((end - buffer.at) / buffer.element);
    return buffer;
  }

  // Allocate a heap buffer. First free the buffers that it overlaps.
  void allocate() {
    Buffer buffer{below(kHeap / 64) * 64, uint64_t{1} << below(4), 0, {}};
    buffer.raw = shape((kHeap - buffer.at) / buffer.element);
    const uint64_t end = buffer.at + buffer.bytes();
    for (size_t tag = 0; tag < heaps_.size(); ++tag) {
      if (heaps_[tag].begin < end && buffer.at < heaps_[tag].end) kill(static_cast<int64_t>(tag));
    }
    buffer.tag = static_cast<int64_t>(heaps_.size());
    heaps_.push_back({buffer.at, end, true});
    buffers_.push_back(buffer);
    if (!index_.has_space(1)) return;
    const View view = one_in(4) ? random_view(buffer) : whole(buffer);
    place_ = {};
    if (!view.is_key()) write(view, true);
  }

  void kill(int64_t tag) {
    heaps_[static_cast<size_t>(tag)].alive = false;
    const auto is_of = [&](const Buffer& buffer) { return buffer.tag == tag; };
    buffers_.erase(std::remove_if(buffers_.begin(), buffers_.end(), is_of), buffers_.end());
    for (Known& known : known_) {
      if (tag_of(known.view) == tag) known.state = RegionState::kGone;
    }
    while (buffers_.size() < 3) buffers_.push_back(external());
  }

  static int64_t tag_of(const View& view) { return static_cast<int64_t>(view.frame[1]); }

  View whole(const Buffer& buffer) {
    return view_of(buffer, std::vector<uint64_t>(buffer.raw.size(), 0), buffer.raw);
  }

  View random_view(const Buffer& buffer) {
    std::vector<uint64_t> low, extent;
    const bool aligned = one_in(2);
    const bool full_inside = one_in(4);
    for (size_t dim = 0; dim < buffer.raw.size(); ++dim) {
      const uint64_t size = buffer.raw[dim];
      uint64_t take = 1 + below(aligned ? std::min<uint64_t>(size, 4) : size);
      uint64_t from = below(size - take + 1);
      if (aligned) from = from / take * take;
      if (aligned && one_in(8)) take = std::min(take, size - (from = size / take * take));
      if (full_inside && dim > 0) from = 0, take = size;
      if (one_in(60)) take = 0;
      low.push_back(from);
      extent.push_back(take);
    }
    return view_of(buffer, low, extent);
  }

  View view_of(const Buffer& buffer, const std::vector<uint64_t>& low,
               const std::vector<uint64_t>& extent) {
    View view;
    uint64_t first = buffer.at;
    uint64_t stride = buffer.element;
    for (size_t dim = buffer.raw.size(); dim-- > 0;) {
      first += low[dim] * stride;
      stride *= buffer.raw[dim];
    }
    RegionBuilder builder(view.region, kMemory + first, buffer.element, buffer.tag);
    for (size_t dim = buffer.raw.size(); dim-- > 0;) {
      builder.add(buffer.raw[dim], low[dim], extent[dim]);
    }
    builder.finish();
    view.frame = {buffer.at, static_cast<uint64_t>(buffer.tag)};
    for (uint64_t size : buffer.raw) {
      if (size != 1) view.frame.push_back(size);
    }
    (view.frame.size() > 2 ? view.frame.back() : view.frame.emplace_back(1)) *= buffer.element;
    add_bytes(view, buffer, low, extent, 0, buffer.at);
    view.begin = view.end = first;
    if (view.bytes.none()) return view;
    view.begin = view.bytes._Find_first();
    view.end = kBytes;
    while (!view.bytes[view.end - 1]) --view.end;
    return view;
  }

  static void add_bytes(View& view, const Buffer& buffer, const std::vector<uint64_t>& low,
                        const std::vector<uint64_t>& extent, size_t dim, uint64_t at) {
    uint64_t stride = buffer.element;
    for (size_t inner = dim + 1; inner < buffer.raw.size(); ++inner) stride *= buffer.raw[inner];
    if (dim == buffer.raw.size()) {
      for (uint64_t byte = 0; byte < buffer.element; ++byte) view.bytes.set(at + byte);
      return;
    }
    for (uint64_t step = low[dim]; step < low[dim] + extent[dim]; ++step) {
      add_bytes(view, buffer, low, extent, dim + 1, at + step * stride);
    }
  }

  // Retire the oldest values, or random values, and erase some of them from the index.
  void die() {
    const bool oldest = one_in(2);
    const uint64_t until = known_.empty() ? 0 : below(known_.size());
    for (uint32_t id = 0; id < known_.size(); ++id) {
      if (oldest ? id > until : !one_in(3)) continue;
      if (known_[id].state == RegionState::kLive) known_[id].state = RegionState::kRetired;
      if (one_in(2)) continue;
      const auto place = inside_.find(id);
      if (place == inside_.end()) continue;
      index_.erase(place->second);
      inside_.erase(place);
    }
  }

  // Return a new view, an earlier view, or a view with the bytes of an earlier view in the buffer
  // that owns them now.
  View next_view() {
    if (recent_.empty() || one_in(2)) {
      const Buffer& buffer = buffers_[below(buffers_.size())];
      const View view = random_view(buffer);
      recent_.push_back({view, buffer.tag});
      return view;
    }
    const Recent& recent = recent_[below(recent_.size())];
    const View& view = recent.view;
    if (view.is_key() || (!one_in(3) && is_alive(recent.tag))) return view;
    const int64_t tag = tag_at(view.begin, view.end);
    if (tag == kNowhere) return random_view(buffers_[below(buffers_.size())]);
    return whole({view.begin, 1, tag, {view.end - view.begin}});
  }

  bool is_alive(int64_t tag) const { return tag == -1 || heaps_[static_cast<size_t>(tag)].alive; }

  // Return the tag of the buffer that owns these bytes.
  int64_t tag_at(uint64_t begin, uint64_t end) const {
    if (begin >= kHeap) return -1;
    for (size_t tag = 0; tag < heaps_.size(); ++tag) {
      const Heap& heap = heaps_[tag];
      if (heap.alive && heap.begin <= begin && end <= heap.end) return static_cast<int64_t>(tag);
    }
    return kNowhere;
  }

  bool act() {
    const View view = next_view();
    place_ = {};
    if (one_in(2)) index_.prepare(view.region, place_);
    if (!one_in(4) && !look_up(view)) return false;
    while (!index_.has_space(1)) make_space();
    switch (below(4)) {
      case 0:
        return true;
      case 1:
        return read(view);
      default:
        return write(view, false);
    }
  }

  void make_space() {
    for (Known& known : known_) {
      if (known.state == RegionState::kLive) known.state = RegionState::kRetired;
    }
    for (const auto& entry : inside_) index_.erase(entry.second);
    inside_.clear();
  }

  bool look_up(const View& view) {
    std::map<uint32_t, bool> expected, found;
    for (uint32_t id = 0; id < known_.size(); ++id) {
      const Known& known = known_[id];
      if (known.state != RegionState::kLive || !overlap(view, known.view)) continue;
      expected[id] = is_conservative(view, known.view);
    }
    Policy policy{*this};
    bool twice = false;
    index_.find(view.region, place_, policy, [&](uint32_t id, bool conservative) {
      twice |= !found.emplace(id, conservative).second;
    });
    if (found == expected && !twice) return true;
    story_ = "a search found " + std::to_string(found.size()) + " values instead of " +
             std::to_string(expected.size()) + (twice ? ", one of them twice" : "");
    return false;
  }

  bool write(const View& view, bool is_fresh) {
    Policy policy{*this};
    const uint32_t node = index_.replace(view.region, place_, policy, is_fresh);
    for (uint32_t id = 0; id < known_.size(); ++id) {
      Known& known = known_[id];
      if (known.state != RegionState::kLive || !covers(view, known.view)) continue;
      known.state = RegionState::kRetired;
      if (inside_.count(id) == 0) continue;
      story_ = "a covered value is still in the index";
      return false;
    }
    remember(view, node);
    return check_inside();
  }

  // Add a value for the region if it has none. This removes no regions that the region covers.
  bool read(const View& view) {
    Policy policy{*this};
    bool is_new = false;
    const uint32_t node = index_.obtain(view.region, place_, policy, &is_new);
    if (is_new) remember(view, node);
    return check_inside();
  }

  void remember(const View& view, uint32_t node) {
    const auto id = static_cast<uint32_t>(known_.size());
    known_.push_back({view, RegionState::kLive});
    index_.value(node) = id;
    inside_[id] = node;
  }

  bool check_inside() {
    for (uint32_t id = 0; id < known_.size(); ++id) {
      if (known_[id].state == RegionState::kLive && inside_.count(id) == 0) {
        story_ = "a live value has left the index";
        return false;
      }
    }
    if (index_.live() == inside_.size()) return true;
    story_ = "the index holds " + std::to_string(index_.live()) + " values instead of " +
             std::to_string(inside_.size());
    return false;
  }

  struct Heap {
    uint64_t begin;
    uint64_t end;
    bool alive;
  };

  struct Recent {
    View view;
    int64_t tag;
  };

  HeapMemory memory_;
  std::mt19937_64 random_;
  RegionIndex<uint32_t> index_;
  std::vector<Buffer> buffers_;
  std::vector<Heap> heaps_;  // indexed by tag
  std::vector<Recent> recent_;
  std::vector<Known> known_;             // indexed by id
  std::map<uint32_t, uint32_t> inside_;  // id to node
  RegionPlace place_;                    // the region of the last look-up
  std::string story_;
};

}  // namespace

int main(int argc, char** argv) {
  const uint64_t first = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 300;
  for (uint64_t seed = first; seed < first + rounds; ++seed) {
    Round round(seed);
    if (round.run(400)) continue;
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(seed),
                 round.story().c_str());
    return 1;
  }
  std::printf("%llu rounds from seed %llu\n", static_cast<unsigned long long>(rounds),
              static_cast<unsigned long long>(first));
  return 0;
}
