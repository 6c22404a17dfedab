// The region map. It contains, for each region of memory, the task that wrote it in this run and,
// under full hazards, the tasks that have read it since.
//
// Each submit first calls find_*() for all tensors, then reserve(), then insert_*() for all
// tensors. The entries of a task form a list that starts at Slot::entries. An entry is removed when
// its task is consumed, when a later writer covers it, or when a search finds it after its slab was
// freed. The outputs of a failed task stay, so that later readers are poisoned.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/slots.hpp"
#include "pto/engine/memory.hpp"
#include "pto/engine/region_index.hpp"

namespace pto::worker {

// A tensor of a submit.
struct Access {
  engine::Region region;
  uint32_t owner;  // slot of the task that owns the slab of the tensor; kNoSlot: none
  Tag tag;
  bool is_fresh;  // whether this submit allocates its memory
  engine::RegionPlace writers;
  engine::RegionPlace readers;
};

// The tensors of a submit. The object is reused to keep its memory.
class Accesses {
 public:
  void clear() { count_ = 0; }
  bool empty() const { return count_ == 0; }
  uint32_t size() const { return count_; }
  Access* begin() { return all_.data(); }
  Access* end() { return all_.data() + count_; }
  Access& operator[](uint32_t at) { return all_[at]; }

  // Add an access. The caller fills in its region and owner.
  Access& add(Tag tag, bool is_fresh) {
    if (count_ == all_.size()) all_.emplace_back();
    Access& access = all_[count_++];
    access.region.tag = kNone;
    access.region.dims = 0;
    access.region.contiguous = true;
    access.owner = kNoSlot;
    access.tag = tag;
    access.is_fresh = is_fresh;
    access.writers.changes = access.writers.prepared = 0;
    access.readers.changes = access.readers.prepared = 0;
    return access;
  }

 private:
  std::vector<Access> all_;
  uint32_t count_ = 0;
};

// A task that a search found: a live task with its slot, or a failed task with the root of its
// failure.
struct Found {
  int64_t number;
  uint32_t slot;
  int64_t root;
};

class RegionMap {
 public:
  explicit RegionMap(Slots& slots);
  ~RegionMap();

  // Clear the data of the previous run.
  void restart(bool full_hazards);

  // Call visit(const Found&, bool is_certain) for each writer whose region overlaps the access.
  template <class Visit>
  void find_writers(Access& access, Visit&& visit) {
    if (writers_.live() == 0) return;
    WriterPolicy policy{*this};
    writers_.find(
        access.region, access.writers, policy,
        [&](const Entry& entry, bool is_conservative) { visit(found(entry), !is_conservative); });
  }

  // Call visit() for each reader whose region overlaps the access. A reader may be visited several
  // times.
  template <class Visit>
  void find_readers(Access& access, Visit&& visit) {
    if (!full_hazards_ || readers_->live() == 0) return;
    ReaderPolicy policy{*this};
    readers_->find(access.region, access.readers, policy,
                   [&](const ReaderList& list, bool is_conservative) {
                     for (uint32_t index = list.first; index != 0; index = pool_[index].older) {
                       visit(found(pool_[index].entry), !is_conservative);
                     }
                   });
  }

  // Reserve memory for this many insertions of each kind. If memory is exhausted, throws
  // std::bad_alloc and changes nothing.
  void reserve(uint32_t entries);
  // Add the task as a writer, and remove the entries that the region covers.
  void insert_writer(Access& access, uint32_t slot);
  // Add the task as a reader. Does nothing under raw hazards.
  void insert_reader(Access& access, uint32_t slot);

  // Let the entries of consumed tasks poison later tasks only if the tasks are in `roots`.
  void keep_roots(const std::unordered_map<int64_t, int64_t>& roots);
  // Remove the entries of a consumed task.
  void release(Slot& slot);

  // Return the number of entries of tasks that are neither alive nor failed. It must be 0. For
  // tests.
  uint64_t stray() const;

 private:
  // A link in the list of a task's entries. It is the node of a writer or, if kReaderLink is set,
  // the index of a reader in the pool; 0 ends the list.
  using Link = uint32_t;
  static constexpr Link kReaderLink = 0x80000000u;
  // A bit in `task`. If it is set, the other bits are an index of failed_.
  static constexpr uint32_t kFailed = 0x80000000u;
  static constexpr uint32_t kUsual = 1u << 17;
  static constexpr uint32_t kAtOnce = 1u << 22;

  struct Entry {
    uint32_t task;
    uint32_t owner;
    uint32_t owner_number;  // the lower half of the task number of the owner
    Link next;              // next entry of the same task
    Link previous;
  };
  struct Reader {
    Entry entry;
    uint32_t node;   // node of its region
    uint32_t older;  // next older reader of the same region; also links the free readers
    uint32_t newer;
  };
  struct ReaderList {
    uint32_t first;  // the newest
  };
  using Writers = engine::RegionIndex<Entry>;
  using Readers = engine::RegionIndex<ReaderList>;

  struct WriterPolicy {
    RegionMap& map;
    engine::RegionState state(const Entry& entry) const { return map.state_of(entry); }
    void removed(const Entry& entry, engine::RegionRemoval) { map.unlink(entry); }
  };
  // All readers of a region refer to the same slab, so the first reader determines the state.
  struct ReaderPolicy {
    RegionMap& map;
    engine::RegionState state(const ReaderList& list) const {
      return map.state_of(map.pool_[list.first].entry);
    }
    void removed(const ReaderList& list, engine::RegionRemoval) { map.forget_all(list); }
  };

  engine::RegionState state_of(const Entry& entry) const {
    const bool is_gone = entry.owner != kNoSlot &&
                         static_cast<uint32_t>(slots_[entry.owner].number) != entry.owner_number;
    return is_gone ? engine::RegionState::kGone : engine::RegionState::kLive;
  }

  Found found(const Entry& entry) const {
    if ((entry.task & kFailed) == 0) {
      const Slot& slot = slots_[entry.task];
      return {slot.number, entry.task, slot.has_root ? slot.failure : kNotPoisoned};
    }
    const Failed& failed = failed_[entry.task & ~kFailed];
    return {failed.number, kNoSlot, failed.root};
  }

  Entry& entry_at(Link link) {
    return (link & kReaderLink) != 0 ? pool_[link & ~kReaderLink].entry : writers_.value(link);
  }

  void link(Entry& entry, Link self, uint32_t slot, uint32_t owner);
  void unlink(const Entry& entry);
  void forget_all(const ReaderList& list);
  void release_reader(uint32_t index);

  struct Failed {
    int64_t number;
    int64_t root;
  };

  Slots& slots_;
  pto_platform platform_;
  engine::Memory memory_;
  Writers writers_;
  std::optional<Readers> readers_;  // exists if a run has used full hazards
  uint32_t writer_capacity_ = kUsual;
  uint32_t reader_capacity_ = kUsual;
  Pool<Reader, &Reader::older> pool_;
  std::vector<Failed> failed_;  // number of consumed tasks that still have entries
  bool full_hazards_ = false;
};

}  // namespace pto::worker
