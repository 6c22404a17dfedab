// The boxes of many frames in one hash table of cells: the storage and search of the region index.
//
// A frame's boxes are divided into layers. Each layer has one cell size. A box is stored in the
// cell that contains its lowest corner:
//   tiles      every box fills one cell, which the end of the frame may cut off. A search visits
//              the cells that its region overlaps; for a box of the layer's shape this is one cell.
//   power of 2 no box is larger than a cell. A search also visits the next lower cell.
// If a search would visit more cells than the layer has boxes, it visits all boxes instead.
//
// A bucket is itself a node, so reading the first box of a bucket costs one cache line. Further
// boxes of the bucket are in nodes after all buckets. A new run does not clear the buckets: a
// bucket is empty unless its stamp is that of the current run.
//
// Only one thread may use this object.
#pragma once

#include <cstdint>

#include "pto/engine/memory.hpp"
#include "pto/engine/region.hpp"

namespace pto::engine {

constexpr uint32_t kNoNode = 0;
constexpr uint32_t kNoLayer = 0;

// Return the exponent of the smallest power of 2 that is at least `value`, at most 63.
inline uint32_t power_above(uint64_t value) {
  if (value <= 1) return 0;
  const uint32_t power = 64 - static_cast<uint32_t>(__builtin_clzll(value - 1));
  return power < 63 ? power : 63;
}

// The grid formed by the cells of a layer.
struct CellGrid {
  struct Dim {
    uint64_t size;   // size of a cell
    uint64_t magic;  // multiplier that replaces a division; 0: the size is 1 << shift
    uint64_t step;   // difference between the numbers of two neighbouring cells in this dimension
    uint64_t raw;    // size of the frame in this dimension
    uint32_t shift;

    uint64_t cell(uint64_t at) const {
      if (magic == 0) return at >> shift;
      if ((at | size) >> 32 != 0) return at / size;
      __extension__ using Wide = unsigned __int128;
      return static_cast<uint64_t>(static_cast<Wide>(at) * magic >> 64);
    }
  };

  uint32_t dims;
  bool is_tiles;
  Dim dim[kMaxDims];

  void set(const uint64_t* raw, const uint64_t* cell_size, uint32_t dimensions, bool tiles) {
    dims = dimensions;
    is_tiles = tiles;
    uint64_t cells = 1;
    for (uint32_t at = 0; at < dims; ++at) {
      const uint64_t size = cell_size[at];
      const bool is_power = (size & (size - 1)) == 0;
      dim[at].size = size;
      dim[at].shift = is_power ? static_cast<uint32_t>(__builtin_ctzll(size)) : 0;
      dim[at].magic = is_power ? 0 : ~uint64_t{0} / size + 1;
      dim[at].step = cells;
      dim[at].raw = raw[at];
      cells *= dim[at].cell(raw[at] - 1) + 1;
    }
  }

  // Set the cell size to the size of the box.
  void set_tiles(const uint64_t* raw, const uint64_t* low, const uint64_t* high,
                 uint32_t dimensions) {
    uint64_t cell_size[kMaxDims];
    for (uint32_t at = 0; at < dimensions; ++at) cell_size[at] = high[at] - low[at];
    set(raw, cell_size, dimensions, true);
  }

  // Set the cell size to powers of 2 that are not smaller than the box. `low` may be NULL, which
  // means 0 in each dimension.
  void set_powers(const uint64_t* raw, const uint64_t* low, const uint64_t* high,
                  uint32_t dimensions) {
    uint64_t cell_size[kMaxDims];
    for (uint32_t at = 0; at < dimensions; ++at) {
      const uint64_t extent = high[at] - (low == nullptr ? 0 : low[at]);
      cell_size[at] = uint64_t{1} << power_above(extent);
    }
    set(raw, cell_size, dimensions, false);
  }

  bool has_sizes_of(const CellGrid& other) const {
    for (uint32_t at = 0; at < dims; ++at) {
      if (dim[at].size != other.dim[at].size) return false;
    }
    return true;
  }

  // Return whether the box fits into a cell.
  bool holds(const uint64_t* low, const uint64_t* high) const {
    for (uint32_t at = 0; at < dims; ++at) {
      if (high[at] - low[at] > dim[at].size) return false;
    }
    return true;
  }

  // Return the number of the cell that contains the lowest corner.
  uint64_t number(const uint64_t* low) const {
    uint64_t sum = 0;
    for (uint32_t at = 0; at < dims; ++at) sum += dim[at].cell(low[at]) * dim[at].step;
    return sum;
  }

  // Return whether the box is exactly one tile; if so, set `number` to the number of its cell.
  bool is_tile(const uint64_t* low, const uint64_t* high, uint64_t* number) const {
    uint64_t sum = 0;
    for (uint32_t at = 0; at < dims; ++at) {
      const Dim& grid = dim[at];
      const uint64_t cell = grid.cell(low[at]);
      const uint64_t tile_end = low[at] + grid.size;
      if (cell * grid.size != low[at]) return false;
      if (high[at] != tile_end && (high[at] != grid.raw || tile_end < grid.raw)) return false;
      sum += cell * grid.step;
    }
    *number = sum;
    return true;
  }

  // Return the first cell of dimension `at` whose boxes can extend to `low`.
  uint64_t first_cell(uint32_t at, uint64_t low) const {
    const uint64_t slack = is_tiles ? 0 : dim[at].size - 1;
    return dim[at].cell(low > slack ? low - slack : 0);
  }
};

template <class Value>
class RegionGrid {
 public:
  struct Layer {
    uint32_t frame;
    uint32_t next;   // next layer of the same frame
    uint32_t count;  // number of boxes
    uint32_t first;  // a box of the layer
    CellGrid grid;
  };

  // The part of a box that a search reads first. It fits into one cache line if the value has at
  // most 24 bytes.
  struct Node {
    uint64_t cell;
    uint32_t layer;     // kNoLayer if the node is an empty bucket
    uint32_t stamp;     // for a bucket: the run in which it was written
    uint32_t next;      // next box of the bucket
    uint32_t previous;  // previous box of the bucket, if any
    uint32_t layer_next;
    uint32_t layer_previous;
    uint32_t extent;
    bool shared;  // whether other boxes of its frame may overlap it
    Value value;
  };

  struct Extent {
    uint64_t begin;
    uint64_t end;
    uint64_t low[kMaxDims];
    uint64_t high[kMaxDims];
    // In use: the frame that owns this memory, or 0 if the region has a value. Free: the next free
    // extent.
    uint32_t stands_for;
    bool contiguous;
  };

  // Create a grid for at most `nodes` boxes in at most `layers` layers. It is fastest for up to
  // `usual` boxes.
  bool create(Memory& memory, uint32_t usual, uint32_t nodes, uint32_t layers) {
    memory_ = &memory;
    buckets_ = 64;
    while (buckets_ < usual) buckets_ *= 2;
    node_limit_ = buckets_ + nodes + 1;
    extent_limit_ = nodes + 1;
    layer_limit_ = layers + 1;
    nodes_ = static_cast<Node*>(memory.reserve(node_limit_ * sizeof(Node)));
    extents_ = static_cast<Extent*>(memory.reserve(extent_limit_ * sizeof(Extent)));
    layers_ = static_cast<Layer*>(memory.reserve(layer_limit_ * sizeof(Layer)));
    return nodes_ != nullptr && extents_ != nullptr && layers_ != nullptr;
  }

  void destroy() {
    if (memory_ == nullptr) return;
    memory_->release(nodes_, node_limit_ * sizeof(Node));
    memory_->release(extents_, extent_limit_ * sizeof(Extent));
    memory_->release(layers_, layer_limit_ * sizeof(Layer));
  }

  // Grow to `nodes` boxes and `layers` layers. All indices stay valid. Return false if memory is
  // exhausted.
  bool grow(uint32_t nodes, uint32_t layers) {
    const uint32_t limit = buckets_ + nodes + 1;
    if (!memory_->enlarge(nodes_, next_node_, node_limit_, limit)) return false;
    node_limit_ = limit;
    if (!memory_->enlarge(extents_, next_extent_, extent_limit_, nodes + 1)) return false;
    extent_limit_ = nodes + 1;
    if (!memory_->enlarge(layers_, next_layer_, layer_limit_, layers + 1)) return false;
    layer_limit_ = layers + 1;
    return true;
  }

  void restart() {
    if (++stamp_ == 0) clear_stamps();
    next_node_ = buckets_ + 1;
    next_layer_ = next_extent_ = 1;
    free_node_ = kNoNode;
    free_extent_ = 0;
    free_layer_ = kNoLayer;
    live_ = 0;
  }

  Node& node(uint32_t index) const { return nodes_[index]; }
  Extent& extent(uint32_t index) const { return extents_[nodes_[index].extent]; }
  Layer& layer(uint32_t index) const { return layers_[index]; }
  uint32_t live() const { return live_; }
  // Return the number of cells and boxes that searches have read.
  uint64_t visited() const { return visited_; }

  // Return an unused layer, or kNoLayer if none is left.
  uint32_t take_layer() {
    if (free_layer_ != kNoLayer) {
      const uint32_t index = free_layer_;
      free_layer_ = layers_[index].next;
      return index;
    }
    return next_layer_ < layer_limit_ ? next_layer_++ : kNoLayer;
  }

  void free_layer(uint32_t index) {
    layers_[index].next = free_layer_;
    free_layer_ = index;
  }

  // Add a box in the cell of its lowest corner. The caller fills in extent and value. The grid must
  // have free space.
  uint32_t add(uint32_t layer_index, uint64_t cell) {
    const uint32_t index = take_node(bucket_of(layer_index, cell));
    Layer& layer = layers_[layer_index];
    Node& node = nodes_[index];
    node.cell = cell;
    node.layer = layer_index;
    node.extent = take_extent();
    node.layer_previous = kNoNode;
    node.layer_next = layer.first;
    if (layer.first != kNoNode) nodes_[layer.first].layer_previous = index;
    layer.first = index;
    ++layer.count;
    ++live_;
    return index;
  }

  void remove(uint32_t index) {
    Node& node = nodes_[index];
    Layer& layer = layers_[node.layer];
    if (node.layer_next != kNoNode) nodes_[node.layer_next].layer_previous = node.layer_previous;
    if (node.layer_previous != kNoNode) {
      nodes_[node.layer_previous].layer_next = node.layer_next;
    } else {
      layer.first = node.layer_next;
    }
    --layer.count;
    --live_;
    node.layer = kNoLayer;
    extents_[node.extent].stands_for = free_extent_;
    free_extent_ = node.extent;
    if (index > buckets_) free_node(index);
  }

  // Call visit(index) for each box of the cell. visit() may remove that box.
  template <class Visit>
  void in_cell(uint32_t layer, uint64_t cell, Visit&& visit) {
    uint32_t index = first_in_bucket(layer, cell);
    ++visited_;
    while (index != kNoNode) {
      const Node& node = nodes_[index];
      const uint32_t next = node.next;
      ++visited_;
      if (node.cell == cell && node.layer == layer) visit(index);
      index = next;
    }
  }

  // Return the box of a tile, or kNoNode. A tile has at most one box.
  uint32_t tile(uint32_t layer, uint64_t cell) {
    uint32_t index = first_in_bucket(layer, cell);
    ++visited_;
    while (index != kNoNode && (nodes_[index].cell != cell || nodes_[index].layer != layer)) {
      index = nodes_[index].next;
      ++visited_;
    }
    return index;
  }

  // Prefetch the first bucket of the cell.
  void prefetch(uint32_t layer, uint64_t cell) const {
    __builtin_prefetch(&nodes_[bucket_of(layer, cell)], 1);
  }

  void prefetch(uint32_t index) const { __builtin_prefetch(&nodes_[index], 1); }

  // Return the box of a power-of-2 layer that is equal to [low, high), or kNoNode.
  uint32_t box(uint32_t layer, const uint64_t* low, const uint64_t* high) {
    const uint32_t dims = layers_[layer].grid.dims;
    uint32_t found = kNoNode;
    in_cell(layer, layers_[layer].grid.number(low), [&](uint32_t index) {
      const Extent& box = extent(index);
      if (box_lies_in(box.low, box.high, low, high, dims) &&
          box_lies_in(low, high, box.low, box.high, dims)) {
        found = index;
      }
    });
    return found;
  }

  // Call visit(index) for each box of the layer that overlaps [low, high). visit() may remove that
  // box.
  template <class Visit>
  void search(uint32_t layer_index, const uint64_t* low, const uint64_t* high, Visit&& visit) {
    const Layer& layer = layers_[layer_index];
    const uint32_t dims = layer.grid.dims;
    const auto meets = [&](uint32_t index) {
      const Extent& box = extent(index);
      if (boxes_meet(box.low, box.high, low, high, dims)) visit(index);
    };
    CellRange range;
    if (range.set(layer.grid, low, high, layer.count)) {
      do {
        in_cell(layer_index, range.number(), meets);
      } while (range.advance());
    } else {
      all_of(layer_index, meets);
    }
  }

 private:
  // Iterates over the cells of a search.
  class CellRange {
   public:
    // Return false if there are more than `limit` cells.
    bool set(const CellGrid& grid, const uint64_t* low, const uint64_t* high, uint64_t limit) {
      grid_ = &grid;
      uint64_t cells = 1;
      for (uint32_t dim = 0; dim < grid.dims; ++dim) {
        const uint64_t first = grid.first_cell(dim, low[dim]);
        const uint64_t more = grid.dim[dim].cell(high[dim] - 1) - first;
        if (more >= limit || (cells *= more + 1) > limit) return false;
        number_ += first * grid.dim[dim].step;
        more_[dim] = left_[dim] = static_cast<uint32_t>(more);
      }
      return true;
    }

    uint64_t number() const { return number_; }

    bool advance() {
      for (uint32_t dim = 0; dim < grid_->dims; ++dim) {
        if (left_[dim] > 0) {
          --left_[dim];
          number_ += grid_->dim[dim].step;
          return true;
        }
        number_ -= more_[dim] * grid_->dim[dim].step;
        left_[dim] = more_[dim];
      }
      return false;
    }

   private:
    const CellGrid* grid_;
    uint64_t number_ = 0;
    uint32_t more_[kMaxDims];  // number of cells in this dimension, minus 1
    uint32_t left_[kMaxDims];
  };

  template <class Visit>
  void all_of(uint32_t layer, Visit&& visit) {
    uint32_t index = layers_[layer].first;
    while (index != kNoNode) {
      const uint32_t next = nodes_[index].layer_next;
      ++visited_;
      visit(index);
      index = next;
    }
  }

  // Extents are stored separately from the nodes, so that few pages are in use when few boxes are
  // alive.
  uint32_t take_extent() {
    if (free_extent_ == 0) return next_extent_++;
    const uint32_t index = free_extent_;
    free_extent_ = extents_[index].stands_for;
    return index;
  }

  // Return the bucket if it is empty, otherwise a node after the buckets.
  uint32_t take_node(uint32_t bucket) {
    Node& first = nodes_[bucket];
    if (first.stamp != stamp_) {
      first.stamp = stamp_;
      first.next = kNoNode;
      return bucket;
    }
    if (first.layer == kNoLayer) return bucket;
    uint32_t index = free_node_;
    if (index != kNoNode) {
      free_node_ = nodes_[index].next;
    } else {
      index = next_node_++;
    }
    Node& node = nodes_[index];
    node.next = first.next;
    node.previous = bucket;
    if (node.next != kNoNode) nodes_[node.next].previous = index;
    first.next = index;
    return index;
  }

  void free_node(uint32_t index) {
    Node& node = nodes_[index];
    nodes_[node.previous].next = node.next;
    if (node.next != kNoNode) nodes_[node.next].previous = node.previous;
    node.next = free_node_;
    free_node_ = index;
  }

  // Neighbouring cells have neighbouring buckets, which share pages.
  uint32_t bucket_of(uint32_t layer, uint64_t cell) const {
    const uint64_t mixed = cell + (cell >> 16) * 0x9E3779B1u + layer * uint64_t{0x9E3779B97F4A7C15};
    return static_cast<uint32_t>(mixed & (buckets_ - 1)) + 1;
  }

  uint32_t first_in_bucket(uint32_t layer, uint64_t cell) const {
    const uint32_t bucket = bucket_of(layer, cell);
    return nodes_[bucket].stamp == stamp_ ? bucket : kNoNode;
  }

  // The stamp overflows once in 2^32 runs.
  void clear_stamps() {
    for (uint32_t bucket = 1; bucket <= buckets_; ++bucket) nodes_[bucket].stamp = 0;
    stamp_ = 1;
  }

  Memory* memory_ = nullptr;
  Node* nodes_ = nullptr;
  Extent* extents_ = nullptr;
  Layer* layers_ = nullptr;
  uint32_t buckets_ = 0;  // a power of 2; the buckets are nodes 1 to buckets_
  uint32_t node_limit_ = 0;
  uint32_t extent_limit_ = 0;
  uint32_t layer_limit_ = 0;
  uint32_t next_node_ = 1;
  uint32_t next_extent_ = 1;
  uint32_t free_extent_ = 0;
  uint32_t next_layer_ = 1;
  uint32_t free_node_ = kNoNode;
  uint32_t free_layer_ = kNoLayer;
  uint32_t stamp_ = 0;
  uint32_t live_ = 0;
  uint64_t visited_ = 0;
};

}  // namespace pto::engine
