#include "engine/regions.hpp"

#include <new>

namespace pto::worker {
namespace {

void* map_pages(void*, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

void unmap_pages(void*, void* memory, size_t bytes) {
  munmap(memory, bytes);
}

// Create an index and grow it at once to a large capacity: this reserves only address space, and
// the tables need not be copied later. If that fails, keep the usual capacity.
template <class Index>
void create(Index& index, engine::Memory& memory, uint32_t usual, uint32_t at_once,
            uint32_t* capacity) {
  if (!index.create(memory, usual)) {
    index.destroy();
    throw std::bad_alloc();
  }
  *capacity = index.grow(at_once) ? at_once : usual;
  index.restart();
}

template <class Index>
void make_space(Index& index, uint32_t entries, uint32_t* capacity) {
  if (index.has_space(entries)) return;
  const uint64_t larger = uint64_t{*capacity} * 2 + entries;
  if (larger > ~uint32_t{0} / 4 || !index.grow(static_cast<uint32_t>(larger))) {
    throw std::bad_alloc();
  }
  *capacity = static_cast<uint32_t>(larger);
}

}  // namespace

RegionMap::RegionMap(Slots& slots) : slots_(slots), platform_{}, memory_(&platform_) {
  platform_.reserve = map_pages;
  platform_.release = unmap_pages;
  create(writers_, memory_, kUsual, kAtOnce, &writer_capacity_);
}

RegionMap::~RegionMap() {
  writers_.destroy();
  if (readers_) readers_->destroy();
}

void RegionMap::restart(bool full_hazards) {
  if (full_hazards && !readers_) {
    create(readers_.emplace(), memory_, kUsual, kAtOnce, &reader_capacity_);
  }
  // The entries of readers were removed with their tasks. Only entries of failed tasks may remain
  // among the writers.
  if (writers_.live() > 0) writers_.restart();
  failed_.clear();
  full_hazards_ = full_hazards;
}

void RegionMap::reserve(uint32_t entries) {
  make_space(writers_, entries, &writer_capacity_);
  if (!full_hazards_) return;
  make_space(*readers_, entries, &reader_capacity_);
  pool_.reserve(entries);
}

void RegionMap::insert_writer(Access& access, uint32_t slot) {
  WriterPolicy policy{*this};
  const uint32_t node = writers_.replace(access.region, access.writers, policy, access.is_fresh);
  link(writers_.value(node), node, slot, access.owner);
  if (!full_hazards_ || access.is_fresh || readers_->live() == 0) return;
  ReaderPolicy readers{*this};
  readers_->remove_covered(access.region, access.readers, readers);
}

void RegionMap::insert_reader(Access& access, uint32_t slot) {
  if (!full_hazards_) return;
  ReaderPolicy policy{*this};
  bool is_new;
  const uint32_t node = readers_->obtain(access.region, access.readers, policy, &is_new);
  ReaderList& list = readers_->value(node);
  if (is_new) list.first = 0;
  if (list.first != 0 && pool_[list.first].entry.task == slot) return;
  const uint32_t index = pool_.take();
  Reader& reader = pool_[index];
  link(reader.entry, index | kReaderLink, slot, access.owner);
  reader.node = node;
  reader.older = list.first;
  reader.newer = 0;
  if (list.first != 0) pool_[list.first].newer = index;
  list.first = index;
}

void RegionMap::release(Slot& slot) {
  Link link = slot.entries;
  if (link == 0) return;
  uint32_t failed = 0;
  while (link != 0) {
    const Entry entry = entry_at(link);
    if ((link & kReaderLink) != 0) {
      release_reader(link & ~kReaderLink);
    } else if (!slot.has_root) {
      writers_.erase(link);
    } else {
      if (failed == 0) {
        failed = static_cast<uint32_t>(failed_.size()) | kFailed;
        failed_.push_back({slot.number, slot.failure});
      }
      writers_.value(link).task = failed;
    }
    link = entry.next;
  }
  slot.entries = 0;
}

void RegionMap::keep_roots(const std::unordered_map<int64_t, int64_t>& roots) {
  for (Failed& failed : failed_)
    if (!roots.contains(failed.number)) failed.root = kNotPoisoned;
}

void RegionMap::link(Entry& entry, Link self, uint32_t slot, uint32_t owner) {
  Slot& task = slots_[slot];
  const uint32_t number = owner == kNoSlot ? 0 : static_cast<uint32_t>(slots_[owner].number);
  entry = {slot, owner, number, task.entries, 0};
  if (task.entries != 0) entry_at(task.entries).previous = self;
  task.entries = self;
}

void RegionMap::unlink(const Entry& entry) {
  if ((entry.task & kFailed) != 0) return;
  if (entry.previous != 0) {
    entry_at(entry.previous).next = entry.next;
  } else {
    slots_[entry.task].entries = entry.next;
  }
  if (entry.next != 0) entry_at(entry.next).previous = entry.previous;
}

void RegionMap::forget_all(const ReaderList& list) {
  uint32_t index = list.first;
  while (index != 0) {
    const uint32_t older = pool_[index].older;
    unlink(pool_[index].entry);
    pool_.give_back(index);
    index = older;
  }
}

// Remove a reader from the list of its region. The caller removes its entry from the task.
void RegionMap::release_reader(uint32_t index) {
  const Reader reader = pool_[index];
  if (reader.older != 0) pool_[reader.older].newer = reader.newer;
  if (reader.newer != 0) {
    pool_[reader.newer].older = reader.older;
  } else if (reader.older != 0) {
    readers_->value(reader.node).first = reader.older;
  } else {
    readers_->erase(reader.node);
  }
  pool_.give_back(index);
}

}  // namespace pto::worker
