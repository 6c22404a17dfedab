#include "edges.hpp"

#include <algorithm>

namespace pto::ring_buffer {

bool EdgeList::create(engine::Memory& memory, const uint64_t* windows) {
  capacity_ = 0;
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    windows_[ring] = windows[ring];
    capacity_ += windows[ring];
    marks_[ring] = static_cast<uint32_t*>(memory.reserve(windows[ring] * sizeof(uint32_t)));
    if (marks_[ring] == nullptr) return false;
  }
  items_ = static_cast<Item*>(memory.reserve(capacity_ * sizeof(Item)));
  return items_ != nullptr;
}

bool EdgeList::grow(engine::Memory& memory, uint64_t window) {
  EdgeList larger;
  uint64_t windows[kRings];
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    windows[ring] = windows_[ring] < window ? window : windows_[ring];
  }
  if (!larger.create(memory, windows)) {
    larger.destroy(memory);
    return false;
  }
  for (uint32_t index = 0; index < count_; ++index) larger.items_[index] = items_[index];
  larger.count_ = count_;
  if (count_ > kScanned) larger.mark_all();
  destroy(memory);
  *this = larger;
  return true;
}

void EdgeList::destroy(engine::Memory& memory) {
  memory.release(items_, capacity_ * sizeof(Item));
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    memory.release(marks_[ring], windows_[ring] * sizeof(uint32_t));
  }
}

void EdgeList::sort() {
  std::sort(items_, items_ + count_,
            [](const Item& left, const Item& right) { return left.producer < right.producer; });
}

uint32_t EdgeList::add_marked(SlotRef producer, uint32_t kind) {
  if (count_ == kScanned) mark_all();
  uint32_t& index = mark(producer);
  if (index < count_ && items_[index].producer == producer) return merge(items_[index], kind);
  index = count_;
  items_[count_++] = {producer, kind};
  return kind;
}

void EdgeList::mark_all() {
  for (uint32_t index = 0; index < count_; ++index) mark(items_[index].producer) = index;
}

}  // namespace pto::ring_buffer
