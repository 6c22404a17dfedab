// A map from regions of memory to values, such as the writer and the readers of a region. It finds
// overlaps across frames and ranges.
//
// Each region has at most one value. Ranges are stored by address, in layers of their own. Boxes
// are stored in the layers of their frame. Each frame also has a node among the ranges, for the
// memory that it covers. The cost of a look-up depends on the number of overlaps that it finds. If
// the region is known and no other region overlaps it, a look-up costs one probe, because `shared`
// is false for its node and its frame.
//
//     ranges, by address                      frame of a buffer: base, element size, raw shape
//       layer of cells of 1 byte                layer of tiles of 64 x 64
//       layer of cells of 4 bytes               layer of tiles of 1 x 4096
//       ...       a node for each range         layer of cells that are powers of 2
//       layer     and for each frame ------->   ...       a node for each box
//
// A look-up has three steps, and most end after the first:
// 1. look_up() finds the node of exactly this region. The answer is complete if nothing else can
//    overlap: `shared` of the node and of its frame are false.
// 2. Otherwise for_each_overlap() searches the layers of the region's own frame.
// 3. If the frame is shared, it also searches the ranges, and the other frames by the bytes that
//    their boxes span. Such an overlap is conservative, unless both are contiguous or a
//    contiguous one contains the other.
//
// RegionPlace keeps what a look-up found, so that a find() and a replace() of the same region
// search once. It is valid while `changes_` has not changed.
//
// Invariants: a node whose `shared` is false overlaps no live node of its frame (or, if it is a
// range, no other range and no frame); a frame whose `shared` is false overlaps no live range and
// no other frame with boxes. So each insertion sets `shared` of all nodes and frames that the new
// region overlaps, and only a search that finds no overlap clears it.
//
// region_place.hpp describes the interface Policy.
//
// Only one thread may use this object.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"
#include "pto/engine/region.hpp"
#include "pto/engine/region_frames.hpp"
#include "pto/engine/region_grid.hpp"
#include "pto/engine/region_place.hpp"

namespace pto::engine {

template <class Value>
class RegionIndex {
  using Grid = RegionGrid<Value>;
  using Node = typename Grid::Node;
  using Extent = typename Grid::Extent;

 public:
  // Create an index for at most `capacity` values. Return false if memory is exhausted.
  bool create(Memory& memory, uint32_t capacity) {
    capacity_ = capacity;
    const uint32_t nodes = nodes_for(capacity);
    return frames_.create(memory, capacity) &&
           grid_.create(memory, capacity, nodes, nodes + kRangeLayers);
  }

  // Grow the index. Values keep their nodes. Searches become slower if there are more values than
  // the capacity at creation. Return false if memory is exhausted.
  bool grow(uint32_t capacity) {
    const uint32_t nodes = nodes_for(capacity);
    if (!frames_.grow(capacity) || !grid_.grow(nodes, nodes + kRangeLayers)) return false;
    capacity_ = capacity;
    return true;
  }

  void destroy() {
    frames_.destroy();
    grid_.destroy();
  }

  // Remove all values, in constant time.
  void restart() {
    grid_.restart();
    frames_.restart();
    live_ = 0;
    ++changes_;
    range_layers_in_use_ = 0;
    for (uint32_t& layer : range_layers_) layer = kNoLayer;
    key_layer_ = add_line_layer(0);
  }

  bool has_space(uint32_t values) const { return live_ + values <= capacity_; }
  uint32_t live() const { return live_; }
  // Return the number of cells and nodes that lookups and insertions have read.
  uint64_t visited() const { return grid_.visited(); }

  Value& value(uint32_t index) const { return grid_.node(index).value; }

  // Prefetch the node of a region that is a tile of its frame, or a range. This only helps if
  // find() or replace() follows some time later.
  void prepare(const Region& region, RegionPlace& place) const {
    if (region.dims > 0) {
      place.frame = frames_.find(region);
      if (place.frame == kNoFrame) return;
      const uint32_t layer = frames_[place.frame].first_layer;
      if (layer == kNoLayer || !grid_.layer(layer).grid.is_tiles) return;
      if (!grid_.layer(layer).grid.is_tile(region.low, region.high, &place.cell)) return;
      place.layer = layer;
    } else {
      place.frame = kNoFrame;
      place.layer = key_layer_;
      place.cell = region.begin;
      if (!region.is_key()) {
        place.layer = range_layers_[range_level(region.end - region.begin)];
        if (place.layer == kNoLayer) return;
        place.cell = grid_.layer(place.layer).grid.number(region.low);
      }
    }
    place.prepared = changes_;
    grid_.prefetch(place.layer, place.cell);
  }

  void prefetch(uint32_t index) const { grid_.prefetch(index); }

  // Call visit(Value&, bool conservative) for each live value whose region overlaps this one. The
  // search removes values that are no longer live.
  template <class Policy, class Visit>
  void find(const Region& region, RegionPlace& place, Policy& policy, Visit&& visit) {
    look_up(region, place, policy);
    if (place.is_complete) {
      if (place.node == kNoNode) return;
      const RegionState state = policy.state(value(place.node));
      if (state == RegionState::kLive) return visit(value(place.node), false);
      drop(place.node, policy, RegionRemoval::kStale);
      place.node = kNoNode;
      place.is_complete = state == RegionState::kRetired || region.is_key();
      place.changes = changes_;
      if (place.is_complete) return;
    }
    find_all(region, place, policy, visit);
  }

  // Return a new node for exactly this region; the caller writes its value. Remove an older node of
  // the region and all nodes that the region covers. `is_fresh`: no live region overlaps this one,
  // so no search is needed. The index must have free space.
  template <class Policy>
  uint32_t replace(const Region& region, RegionPlace& place, Policy& policy, bool is_fresh) {
    look_up(region, place, policy);
    if (place.node != kNoNode && (is_fresh || place.is_complete)) {
      const RegionState state = policy.state(value(place.node));
      const bool is_live = state == RegionState::kLive;
      const auto why = is_live ? RegionRemoval::kCovered : RegionRemoval::kStale;
      if (is_fresh || state != RegionState::kGone || region.is_key()) {
        policy.removed(value(place.node), why);
        return place.node;
      }
      drop(place.node, policy, why);
      place.node = kNoNode;
      place.is_complete = false;
    }
    if (is_fresh || place.is_complete) return add(region, place, false);
    bool is_new;
    const uint32_t index = settle(region, place, policy, true, &is_new);
    if (!is_new) policy.removed(value(index), RegionRemoval::kCovered);
    return index;
  }

  // Return the node of exactly this region. If `is_new` is set, the node is new and the caller
  // writes its value. Regions that this one covers are not removed. The index must have free space.
  template <class Policy>
  uint32_t obtain(const Region& region, RegionPlace& place, Policy& policy, bool* is_new) {
    look_up(region, place, policy);
    if (place.is_complete && place.node != kNoNode) {
      *is_new = false;
      const RegionState state = policy.state(value(place.node));
      if (state == RegionState::kLive) return place.node;
      drop(place.node, policy, RegionRemoval::kStale);
      place.node = kNoNode;
      place.is_complete = state == RegionState::kRetired || region.is_key();
    }
    *is_new = true;
    if (place.is_complete) return add(region, place, false);
    return settle(region, place, policy, false, is_new);
  }

  // Remove all nodes that the region covers.
  template <class Policy>
  void remove_covered(const Region& region, RegionPlace& place, Policy& policy) {
    look_up(region, place, policy);
    if (place.is_complete) {
      if (place.node != kNoNode) drop(place.node, policy, RegionRemoval::kCovered);
      return;
    }
    for_each_overlap(region, place.frame, policy, false, [&](uint32_t index, bool same_frame) {
      if (covers(region, grid_.extent(index), same_frame)) {
        drop(index, policy, RegionRemoval::kCovered);
      }
    });
  }

  // Remove a value at the request of its owner, without a call to the policy.
  void erase(uint32_t index) {
    const uint32_t frame = grid_.layer(grid_.node(index).layer).frame;
    grid_.remove(index);
    --live_;
    ++changes_;
    if (frame != kNoFrame && --frames_[frame].live == 0) frames_.became_empty(frame);
  }

 private:
  // Cells of ranges are 1, 4, 16, ... bytes.
  static constexpr uint32_t kRangeLevels = 32;
  static constexpr uint32_t kRangeLayers = kRangeLevels + 1;
  static constexpr uint32_t kMaxTileLayers = 4;
  static constexpr uint32_t kMaxLayers = 24;
  static constexpr uint8_t kMissesBeforeRecheck = 16;

  // In the worst case each value has a separate frame, and each frame needs a node too.
  static uint32_t nodes_for(uint32_t capacity) { return 2 * capacity + Frames::kMaxEmpty + 2; }

  template <class Policy>
  void look_up(const Region& region, RegionPlace& place, Policy& policy) {
    if (place.changes == changes_) return;
    place.node = kNoNode;
    if (region.dims == 0) {
      place.frame = kNoFrame;
      look_up_line(region, place);
    } else if (place.prepared != changes_ || !look_up_tile(place)) {
      place.layer = kNoLayer;
      place.frame = frames_.find(region);
      if (place.frame == kNoFrame) place.frame = make_frame(region, policy);
      look_up_box(region, place);
    }
    place.changes = changes_;
  }

  // Search a place that prepare() has filled in. Return false if the full search is needed.
  bool look_up_tile(RegionPlace& place) {
    const RegionFrame& frame = frames_[place.frame];
    place.node = grid_.tile(place.layer, place.cell);
    const bool is_only_layer = grid_.layer(place.layer).next == kNoLayer;
    if (place.node == kNoNode && !is_only_layer) return false;
    const bool is_shared = place.node != kNoNode && grid_.node(place.node).shared;
    place.is_complete = !is_shared && !frame.shared;
    return true;
  }

  void look_up_box(const Region& region, RegionPlace& place) {
    const RegionFrame& frame = frames_[place.frame];
    // true while all boxes are tiles of the region's shape: only an equal tile overlaps the region
    bool only_tiles = true;
    for (uint32_t index = frame.first_layer; index != kNoLayer; index = grid_.layer(index).next) {
      const auto& layer = grid_.layer(index);
      uint64_t cell;
      if (layer.grid.is_tiles) {
        if (layer.grid.is_tile(region.low, region.high, &cell)) {
          place.layer = index;
          place.cell = cell;
          place.node = grid_.tile(index, cell);
        } else if (layer.count > 0) {
          only_tiles = false;
        }
      } else if (layer.count > 0) {
        only_tiles = false;
        if (layer.grid.holds(region.low, region.high)) {
          place.node = grid_.box(index, region.low, region.high);
        }
      }
      if (place.node != kNoNode) break;
    }
    const bool is_alone = place.node == kNoNode ? only_tiles : !grid_.node(place.node).shared;
    place.is_complete = is_alone && !frame.shared;
  }

  void look_up_line(const Region& region, RegionPlace& place) {
    if (region.is_key()) {
      place.layer = key_layer_;
      place.cell = region.begin;
      place.node = grid_.tile(key_layer_, region.begin);
      place.is_complete = true;
      return;
    }
    if (place.prepared != changes_ || place.layer == kNoLayer) {
      place.layer = range_layer(region.end - region.begin);
      place.cell = grid_.layer(place.layer).grid.number(region.low);
    }
    grid_.in_cell(place.layer, place.cell, [&](uint32_t index) {
      const Extent& extent = grid_.extent(index);
      const bool is_same = extent.begin == region.begin && extent.end == region.end;
      if (is_same && extent.stands_for == kNoFrame) place.node = index;
    });
    place.is_complete = place.node != kNoNode && !grid_.node(place.node).shared;
  }

  template <class Policy, class Visit>
  void find_all(const Region& region, RegionPlace& place, Policy& policy, Visit&& visit) {
    bool still_there = false;
    bool others = false;
    const auto on_node = [&](uint32_t index, bool same_frame) {
      (index == place.node ? still_there : others) = true;
      visit(value(index), !same_frame && !is_certain(region, grid_.extent(index)));
    };
    others |= for_each_overlap(region, place.frame, policy, false, on_node);
    if (still_there) grid_.node(place.node).shared = others;
  }

  // Mark the nodes that overlap the region as shared. If the caller is a writer, remove the nodes
  // that the region covers. Return the node of the region, which may be new.
  template <class Policy>
  uint32_t settle(const Region& region, RegionPlace& place, Policy& policy, bool is_writer,
                  bool* is_new) {
    bool shared = false;
    *is_new = true;
    const auto on_node = [&](uint32_t index, bool same_frame) {
      if (index == place.node) {
        *is_new = false;
      } else if (is_writer && covers(region, grid_.extent(index), same_frame)) {
        drop(index, policy, RegionRemoval::kCovered);
      } else if (same_frame) {
        grid_.node(index).shared = shared = true;
      }
    };
    shared |= for_each_overlap(region, place.frame, policy, true, on_node);
    if (*is_new) return add(region, place, shared);
    grid_.node(place.node).shared = shared;
    return place.node;
  }

  uint32_t add(const Region& region, RegionPlace& place, bool shared) {
    if (place.frame != kNoFrame) {
      RegionFrame& frame = frames_[place.frame];
      if (place.layer == kNoLayer) pick_layer(frame, region, place);
      if (frame.live++ == 0) frames_.not_empty(place.frame);
    }
    const uint32_t index = grid_.add(place.layer, place.cell);
    fill(index, region);
    grid_.node(index).shared = shared;
    ++live_;
    ++changes_;
    return index;
  }

  void fill(uint32_t index, const Region& region) {
    Extent& extent = grid_.extent(index);
    extent.begin = region.begin;
    extent.end = region.end;
    extent.contiguous = region.contiguous;
    extent.stands_for = kNoFrame;
    for (uint32_t dim = 0; dim < (region.dims == 0 ? 1 : region.dims); ++dim) {
      extent.low[dim] = region.low[dim];
      extent.high[dim] = region.high[dim];
    }
  }

  template <class Policy>
  void drop(uint32_t index, Policy& policy, RegionRemoval why) {
    policy.removed(value(index), why);
    erase(index);
  }

  template <class Policy>
  bool is_live(uint32_t index, Policy& policy) {
    if (policy.state(value(index)) == RegionState::kLive) return true;
    drop(index, policy, RegionRemoval::kStale);
    return false;
  }

  // Call on_node(index, same_frame) for each live node that overlaps the region; on_node may remove
  // that node. If the region is a range, return whether frames with boxes overlap it and, if
  // `marks` is set, mark these frames as shared. Otherwise return false.
  template <class Policy, class OnNode>
  bool for_each_overlap(const Region& region, uint32_t own_frame, Policy& policy, bool marks,
                        OnNode&& on_node) {
    if (own_frame != kNoFrame) {
      uint32_t layer = frames_[own_frame].first_layer;
      for (; layer != kNoLayer; layer = grid_.layer(layer).next) {
        if (grid_.layer(layer).count == 0) continue;
        grid_.search(layer, region.low, region.high, [&](uint32_t index) {
          if (is_live(index, policy)) on_node(index, true);
        });
      }
      if (!frames_[own_frame].shared) return false;
    }
    bool met_range = false;
    bool met_frame = false;
    const auto on_range = [&](uint32_t index) {
      met_range = true;
      if (is_live(index, policy)) on_node(index, own_frame == kNoFrame);
    };
    search_ranges(region.begin, region.end, on_range, [&](uint32_t other) {
      if (other == own_frame) return;
      if (frames_[other].live == 0) return drop_frame(other);
      met_frame = true;
      if (marks && own_frame == kNoFrame) frames_[other].shared = true;
      search_hulls(frames_[other], region, [&](uint32_t index) {
        if (is_live(index, policy)) on_node(index, false);
      });
    });
    if (own_frame == kNoFrame) return met_frame;
    recheck(own_frame, met_range || met_frame, policy);
    return false;
  }

  // Call on_range(index) for each range that overlaps the bytes, and on_frame(frame) for each
  // frame. on_range may remove the node; on_frame may remove nodes of the frame and the frame.
  template <class OnRange, class OnFrame>
  void search_ranges(uint64_t begin, uint64_t end, OnRange&& on_range, OnFrame&& on_frame) {
    uint32_t found = kNoFrame;
    for (uint64_t levels = range_layers_in_use_; levels != 0; levels &= levels - 1) {
      const uint32_t layer = range_layers_[__builtin_ctzll(levels)];
      if (grid_.layer(layer).count == 0) continue;
      grid_.search(layer, &begin, &end, [&](uint32_t index) {
        const uint32_t frame = grid_.extent(index).stands_for;
        if (frame == kNoFrame) return on_range(index);
        frames_[frame].found_next = found;
        found = frame;
      });
    }
    while (found != kNoFrame) {
      const uint32_t frame = found;
      found = frames_[frame].found_next;
      on_frame(frame);
    }
  }

  // Call visit(index) for each box of the frame whose byte hull overlaps that of the region.
  template <class Visit>
  void search_hulls(const RegionFrame& frame, const Region& region, Visit&& visit) {
    const uint32_t slowest = frame.dims - 1;
    const uint64_t bytes = frame.bytes();
    const uint64_t row = bytes / frame.raw[slowest];
    const uint64_t first = region.begin > frame.base ? region.begin - frame.base : 0;
    const uint64_t last = region.end - frame.base < bytes ? region.end - frame.base : bytes;
    uint64_t low[kMaxDims] = {};
    uint64_t high[kMaxDims];
    for (uint32_t dim = 0; dim < slowest; ++dim) high[dim] = frame.raw[dim];
    low[slowest] = first / row;
    high[slowest] = (last - 1) / row + 1;
    for (uint32_t layer = frame.first_layer; layer != kNoLayer; layer = grid_.layer(layer).next) {
      if (grid_.layer(layer).count == 0) continue;
      grid_.search(layer, low, high, [&](uint32_t index) {
        const Extent& extent = grid_.extent(index);
        if (extent.begin < region.end && region.begin < extent.end) visit(index);
      });
    }
  }

  // After enough consecutive searches that found no overlap, check whether any other entry still
  // shares the memory of the frame.
  template <class Policy>
  void recheck(uint32_t index, bool met, Policy& policy) {
    RegionFrame& frame = frames_[index];
    if (met) {
      frame.misses = 0;
    } else if (++frame.misses == kMissesBeforeRecheck) {
      frame.misses = 0;
      frame.shared = mark_others(frame.base, frame.bytes(), index, policy);
    }
  }

  // Mark the live ranges, and the frames with boxes, in this memory as shared. Return whether any
  // exist. Remove frames without boxes.
  template <class Policy>
  bool mark_others(uint64_t base, uint64_t bytes, uint32_t own_frame, Policy& policy) {
    bool met = false;
    const auto on_range = [&](uint32_t index) {
      if (is_live(index, policy)) met = grid_.node(index).shared = true;
    };
    search_ranges(base, base + bytes, on_range, [&](uint32_t other) {
      if (other == own_frame) return;
      if (frames_[other].live == 0) return drop_frame(other);
      met = frames_[other].shared = true;
    });
    return met;
  }

  template <class Policy>
  uint32_t make_frame(const Region& region, Policy& policy) {
    const uint32_t surplus = frames_.surplus();
    if (surplus != kNoFrame) drop_frame(surplus);
    ++changes_;
    const uint32_t index = frames_.add(region);
    RegionFrame& frame = frames_[index];
    const uint64_t bytes = frame.bytes();
    frame.shared = mark_others(frame.base, bytes, index, policy);
    const Region memory = Region::range(frame.base, bytes);
    const uint32_t layer = range_layer(bytes);
    frame.node = grid_.add(layer, grid_.layer(layer).grid.number(memory.low));
    fill(frame.node, memory);
    grid_.extent(frame.node).stands_for = index;
    return index;
  }

  // Remove a frame that has no boxes, with its layers and its node.
  void drop_frame(uint32_t index) {
    ++changes_;
    drop_layers(frames_[index]);
    grid_.remove(frames_[index].node);
    frames_.remove(index);
  }

  // Remove the layers of the frame that have no boxes.
  void drop_layers(RegionFrame& frame) {
    uint32_t* link = &frame.first_layer;
    while (*link != kNoLayer) {
      const uint32_t layer = *link;
      if (grid_.layer(layer).count > 0) {
        link = &grid_.layer(layer).next;
        continue;
      }
      *link = grid_.layer(layer).next;
      grid_.free_layer(layer);
    }
  }

  // Return a layer for a box that is not a tile of an existing layer, and the box's cell in it.
  void pick_layer(RegionFrame& frame, const Region& region, RegionPlace& place) {
    uint32_t tile_layers = 0;
    uint32_t layers = 0;
    for (uint32_t layer = frame.first_layer; layer != kNoLayer; layer = grid_.layer(layer).next) {
      ++layers;
      tile_layers += grid_.layer(layer).grid.is_tiles;
    }
    CellGrid cells;
    if (tile_layers < kMaxTileLayers) {
      cells.set_tiles(frame.raw, region.low, region.high, frame.dims);
      if (cells.is_tile(region.low, region.high, &place.cell)) {
        place.layer = add_layer(frame, place.frame, cells);
        return;
      }
    }
    cells.set_powers(frame.raw, region.low, region.high, frame.dims);
    place.layer = find_layer(frame, region, cells, layers >= kMaxLayers);
    if (place.layer == kNoLayer) {
      if (layers >= kMaxLayers) cells.set_powers(frame.raw, nullptr, frame.raw, frame.dims);
      place.layer = add_layer(frame, place.frame, cells);
    }
    place.cell = grid_.layer(place.layer).grid.number(region.low);
  }

  // Return a power-of-2 layer with these cells or, if `any` is set, with cells at least as large.
  uint32_t find_layer(const RegionFrame& frame, const Region& region, const CellGrid& wanted,
                      bool any) {
    uint32_t layer = frame.first_layer;
    for (; layer != kNoLayer; layer = grid_.layer(layer).next) {
      const CellGrid& cells = grid_.layer(layer).grid;
      if (cells.is_tiles) continue;
      if (cells.has_sizes_of(wanted) || (any && cells.holds(region.low, region.high))) break;
    }
    return layer;
  }

  uint32_t add_layer(RegionFrame& frame, uint32_t frame_index, const CellGrid& cells) {
    drop_layers(frame);
    const uint32_t layer = take_layer();
    grid_.layer(layer) = {frame_index, frame.first_layer, 0, kNoNode, cells};
    frame.first_layer = layer;
    return layer;
  }

  uint32_t take_layer() {
    const uint32_t layer = grid_.take_layer();
    if (layer != kNoLayer) return layer;
    // Free the empty layers of all frames. There are enough empty layers, because there are more
    // layers than frames with boxes. The change of `changes_` makes callers repeat an earlier
    // search, whose layer may have been freed.
    ++changes_;
    for (uint32_t index = 1; index < frames_.end(); ++index) {
      if (frames_[index].in_use) drop_layers(frames_[index]);
    }
    return grid_.take_layer();
  }

  uint32_t add_line_layer(uint32_t shift) {
    const uint64_t whole = ~uint64_t{0};
    const uint64_t size = uint64_t{1} << shift;
    CellGrid cells;
    cells.set(&whole, &size, 1, false);
    const uint32_t layer = take_layer();
    grid_.layer(layer) = {kNoFrame, kNoLayer, 0, kNoNode, cells};
    return layer;
  }

  static uint32_t range_level(uint64_t bytes) {
    const uint32_t level = (power_above(bytes) + 1) / 2;
    return level < kRangeLevels ? level : kRangeLevels - 1;
  }

  uint32_t range_layer(uint64_t bytes) {
    const uint32_t level = range_level(bytes);
    if (range_layers_[level] == kNoLayer) {
      range_layers_[level] = add_line_layer(2 * level);
      range_layers_in_use_ |= uint64_t{1} << level;
    }
    return range_layers_[level];
  }

  static bool covers(const Region& region, const Extent& extent, bool same_frame) {
    if (!same_frame) {
      return region.contiguous && extent.begin >= region.begin && extent.end <= region.end;
    }
    return box_lies_in(extent.low, extent.high, region.low, region.high,
                       region.dims == 0 ? 1 : region.dims);
  }

  // Return whether regions of different frames whose hulls overlap certainly share bytes.
  static bool is_certain(const Region& region, const Extent& extent) {
    if (region.contiguous && extent.contiguous) return true;
    return (region.contiguous && region.begin <= extent.begin && region.end >= extent.end) ||
           (extent.contiguous && extent.begin <= region.begin && extent.end >= region.end);
  }

  Grid grid_;
  Frames frames_;
  uint64_t changes_ = 0;  // the version of the index; a place is valid only for one version
  uint32_t capacity_ = 0;
  uint32_t live_ = 0;
  uint32_t key_layer_ = kNoLayer;
  uint32_t range_layers_[kRangeLevels] = {};
  uint64_t range_layers_in_use_ = 0;  // one bit for each level
};

}  // namespace pto::engine
