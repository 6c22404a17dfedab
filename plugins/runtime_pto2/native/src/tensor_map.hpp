// The map from memory to the live tasks that wrote it and, under full hazards, to the live tasks
// that read it.
//
// Only the orchestrator calls these functions. A submit calls them in this order: locate_access()
// for each parameter; find_*() for all of them; then, if has_space() is true, insert_*() for all of
// them. A look-up visits only live entries. An entry is live until its task or the task that
// allocated its buffer has retired according to saw().
//
// An entry is removed when (1) a look-up visits it after its task or the owner of its buffer has
// retired, (2) retire() is called for its task, or (3) a later writer covers it completely. The
// entries of a task are linked from TaskRecord::first_entry, which is 0 when the task's slot is
// taken. retire() must be called for a task before its record is reused.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pto/abi/tensor.h"
#include "pto/engine/memory.hpp"
#include "pto/engine/region_index.hpp"
#include "rings.hpp"

namespace pto::ring_buffer {

// The memory region of a parameter's view.
struct Access {
  engine::Region region;
  // the task whose submit allocated the buffer; kNoTask if no task owns the buffer
  int64_t owner = kNoTask;
  // The results of look-ups, which the insertions reuse.
  mutable engine::RegionPlace writers;
  mutable engine::RegionPlace readers;
};

// Return the region of a tensor. The tensor must have its final address, and its view must lie
// inside its raw shape.
Access locate_access(const pto_tensor_data& tensor);

// A link to an entry of the tensor map: the node of a writer or, with the bit kReaderLink, the
// entry of a reader; 0 ends a list.
using EntryLink = uint32_t;
constexpr EntryLink kReaderLink = 0x80000000u;

struct MapEntry {
  int64_t task;
  int64_t owner;
  EntryLink next;  // next entry of the same task
  EntryLink previous;
};

struct ReaderEntry {
  MapEntry entry;
  uint32_t node;   // the region that it reads
  uint32_t older;  // next older reader of the same region
  uint32_t newer;
};

// The pool of reader entries. Entry 0 is never in use.
class ReaderPool {
 public:
  bool create(engine::Memory& memory, uint32_t capacity) {
    entries_ = static_cast<ReaderEntry*>(memory.reserve(bytes_of(capacity)));
    return entries_ != nullptr;
  }
  void destroy(engine::Memory& memory, uint32_t capacity) {
    memory.release(entries_, bytes_of(capacity));
  }
  bool grow(engine::Memory& memory, uint32_t from, uint32_t to) {
    return memory.enlarge(entries_, next_, uint64_t{from} + 1, uint64_t{to} + 1);
  }
  void restart() {
    live_ = free_ = 0;
    next_ = 1;
  }

  uint32_t take() {
    ++live_;
    if (free_ == 0) return next_++;
    const uint32_t index = free_;
    free_ = entries_[index].older;
    return index;
  }
  void free(uint32_t index) {
    --live_;
    entries_[index].older = free_;
    free_ = index;
  }

  uint32_t live() const { return live_; }
  ReaderEntry& operator[](uint32_t index) { return entries_[index]; }

 private:
  static uint64_t bytes_of(uint32_t capacity) {
    return (uint64_t{capacity} + 1) * sizeof(ReaderEntry);
  }

  ReaderEntry* entries_ = nullptr;
  uint32_t live_ = 0;
  uint32_t free_ = 0;
  uint32_t next_ = 1;
};

// For the statistics: why entries of retired tasks are removed. kBackPressure: a submit waits for
// entries of this map. kBatch: all other reasons.
enum class CleanedBy : uint32_t { kBatch, kBackPressure };

class TensorMap {
 public:
  struct Statistics {
    uint64_t lookups;
    uint64_t nodes_visited;       // number of entries and cells that look-ups and insertions read
    uint64_t conservative_edges;  // number of visited entries for which only the byte hulls overlap
    uint64_t cleaned_by_lookup;
    uint64_t cleaned_by_batch;
    uint64_t cleaned_by_back_pressure;
    uint64_t covered;  // number of entries that a later writer removed
    uint64_t live;
    uint64_t peak;
  };

  // `capacity`: the number of entries for writers, and also the number of entries for readers.
  // Return false if memory is exhausted.
  bool create(engine::Memory& memory, uint32_t capacity);
  void destroy();
  // Remove all entries. The cost does not depend on their number.
  void begin(const Rings& rings, bool full_hazards);

  // Record that tasks of `ring` before `watermark` have retired.
  void saw(uint32_t ring, int64_t watermark) { alive_from_[ring] = watermark; }

  // Optional: prefetch the data that find_*() will read. Call this some time before find_*().
  void prepare(const Access& access) const {
    writers_.prepare(access.region, access.writers);
    if (full_hazards_) readers_.prepare(access.region, access.readers);
  }

  // Call visit(task, is_conservative) for each live writer whose region overlaps.
  template <class Visit>
  void find_writers(const Access& access, Visit&& visit) {
    WriterPolicy policy{*this};
    ++statistics_.lookups;
    writers_.find(access.region, access.writers, policy,
                  [&](const Entry& entry, bool conservative) {
                    statistics_.conservative_edges += conservative;
                    visit(entry.task, conservative);
                  });
  }

  // Call visit() in the same way for each live reader; under raw hazards there are none. A task
  // that reads a region through several parameters is visited once for each region.
  template <class Visit>
  void find_readers(const Access& access, Visit&& visit) {
    if (!full_hazards_) return;
    ReaderPolicy policy{*this};
    ++statistics_.lookups;
    readers_.find(
        access.region, access.readers, policy, [&](const ReaderList& list, bool conservative) {
          for (uint32_t index = list.first; index != 0; index = reader_pool_[index].older) {
            const Entry& entry = reader_pool_[index].entry;
            if (state_of(entry) != engine::RegionState::kLive) continue;
            statistics_.conservative_edges += conservative;
            visit(entry.task, conservative);
          }
        });
  }

  // Return whether there is space for `entries` more insertions of each kind.
  bool has_space(uint32_t entries) const { return needed(entries) <= limit_; }

  // Return whether `entries` insertions of each kind would fit if the map were empty.
  bool can_ever_hold(uint32_t entries) const { return entries <= limit_; }

  // Return the capacity that is required for the live entries and `entries` more: the larger of the
  // requirements for writers and for readers.
  uint32_t needed(uint32_t entries) const {
    return std::max(writers_.live(), reader_pool_.live()) + entries;
  }

  // For planning: reserve space for `entries` more insertions, until the next begin(). Return false
  // if memory is exhausted.
  bool grow_for(uint32_t entries);

  // Record `task` as the writer, and remove the entries that the region covers completely.
  // `is_fresh`: this submit allocated the memory, so no live entry can overlap it.
  void insert_writer(const Access& access, int64_t task, bool is_fresh);
  // Record `task` as a reader. Does nothing under raw hazards.
  void insert_reader(const Access& access, int64_t task);

  // Optional: prefetch the data that retire() will read. Call this some time before retire().
  void prepare_to_retire(const RingTask& record) const {
    if ((record.first_entry & kReaderLink) == 0) writers_.prefetch(record.first_entry);
  }

  // Free the entries of a task that has retired.
  void retire(RingTask& record, CleanedBy reason);

  Statistics statistics() const;

 private:
  using Entry = MapEntry;
  using Link = EntryLink;

  struct ReaderList {
    uint32_t first;  // the newest
  };

  struct WriterPolicy {
    TensorMap& map;
    engine::RegionState state(const Entry& entry) const { return map.state_of(entry); }
    void removed(Entry& entry, engine::RegionRemoval why) { map.forget(entry, why); }
  };

  struct ReaderPolicy {
    TensorMap& map;
    engine::RegionState state(ReaderList& list) { return map.prune(list); }
    void removed(ReaderList& list, engine::RegionRemoval why) { map.forget_all(list, why); }
  };

  engine::RegionState state_of(const Entry& entry) const {
    const auto is_alive = [this](int64_t task) {
      return task >> 2 >= alive_from_[task & (kRings - 1)];
    };
    if (entry.owner != kNoTask && !is_alive(entry.owner)) return engine::RegionState::kGone;
    return is_alive(entry.task) ? engine::RegionState::kLive : engine::RegionState::kRetired;
  }

  uint32_t& first_of(int64_t task) const {
    return rings_->ring[task & (kRings - 1)].record(task >> 2).first_entry;
  }

  Entry& entry_at(Link link) {
    return (link & kReaderLink) != 0 ? reader_pool_[link & ~kReaderLink].entry
                                     : writers_.value(link);
  }

  void link(Entry& entry, Link self, int64_t task, int64_t owner);
  void count_live();
  void forget(const Entry& entry, engine::RegionRemoval why);
  engine::RegionState prune(ReaderList& list);
  void forget_all(ReaderList& list, engine::RegionRemoval why);
  void retire_reader(uint32_t index);

  engine::RegionIndex<Entry> writers_;
  engine::RegionIndex<ReaderList> readers_;
  ReaderPool reader_pool_;
  engine::Memory* memory_ = nullptr;
  const Rings* rings_ = nullptr;
  int64_t alive_from_[kRings] = {};
  uint32_t configured_ = 0;
  uint32_t limit_ = 0;     // the number of entries that this run may use
  uint32_t capacity_ = 0;  // allocated capacity
  bool full_hazards_ = false;
  uint64_t visited_before_ = 0;  // the run
  Statistics statistics_ = {};
};

}  // namespace pto::ring_buffer
