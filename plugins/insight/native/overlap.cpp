#include "overlap.hpp"

#include <algorithm>

namespace pto::insight {
namespace {

using engine::kMaxDims;
using engine::Region;

// Visits the contiguous pieces of a region in ascending order of addresses.
class Pieces {
 public:
  explicit Pieces(const Region& region) {
    if (region.dims == 0 || region.contiguous) {
      begin_ = region.begin;
      bytes_ = region.end - region.begin;
      return;
    }
    uint64_t stride = 1;
    uint64_t first = region.base;
    bool is_whole = true;  // all faster dimensions are selected as a whole
    bytes_ = 1;
    for (uint32_t dim = 0; dim < region.dims; ++dim) {
      const uint64_t extent = region.high[dim] - region.low[dim];
      first += region.low[dim] * stride;
      if (is_whole) {
        bytes_ *= extent;
      } else {
        extent_[dims_] = extent;
        stride_[dims_++] = stride;
      }
      is_whole = is_whole && extent == region.raw[dim];
      stride *= region.raw[dim];
    }
    begin_ = first;
  }

  bool is_over() const { return is_over_; }
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return begin_ + bytes_; }

  void next() {
    for (uint32_t dim = 0; dim < dims_; ++dim) {
      begin_ += stride_[dim];
      if (++at_[dim] < extent_[dim]) return;
      begin_ -= extent_[dim] * stride_[dim];
      at_[dim] = 0;
    }
    is_over_ = true;
  }

 private:
  uint64_t begin_;
  uint64_t bytes_;
  uint32_t dims_ = 0;
  uint64_t extent_[kMaxDims];
  uint64_t stride_[kMaxDims];
  uint64_t at_[kMaxDims] = {};
  bool is_over_ = false;
};

void add(SharedBytes& shared, uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  if (shared.count == 0) shared.first = begin;
  shared.last = end;
  shared.count += end - begin;
}

SharedBytes of_boxes(const Region& a, const Region& b) {
  SharedBytes shared;
  uint64_t stride = 1;
  uint64_t last = 1;
  shared.first = a.base;
  shared.count = 1;
  for (uint32_t dim = 0; dim < a.dims; ++dim) {
    const uint64_t low = std::max(a.low[dim], b.low[dim]);
    const uint64_t high = std::min(a.high[dim], b.high[dim]);
    if (low >= high) return {};
    shared.first += low * stride;
    last += (high - low - 1) * stride;
    shared.count *= high - low;
    stride *= a.raw[dim];
  }
  shared.last = shared.first + last;
  return shared;
}

}  // namespace

SharedBytes shared_bytes(const Region& a, const Region& b) {
  if (a.is_key() || b.is_key() || a.begin >= b.end || b.begin >= a.end) return {};
  if (engine::is_same_frame(a, b)) return of_boxes(a, b);
  SharedBytes shared;
  Pieces one(a);
  Pieces other(b);
  while (!one.is_over() && !other.is_over()) {
    add(shared, std::max(one.begin(), other.begin()), std::min(one.end(), other.end()));
    (one.end() <= other.end() ? one : other).next();
  }
  return shared;
}

}  // namespace pto::insight
