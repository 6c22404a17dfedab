// One pass over the accesses, in the order of the submits, finds all conflicts.
//
// Two indexes of regions have the accesses so far: one has the regions of writers, the other those
// of readers. Each region has a list of accesses, and each access has a list of accesses below it:
//
//     bytes 0 to 64:  W7 --next--> W5            nothing orders W7 and W5
//                      |
//                    below
//                      v
//                     W3 --next--> R4            inside 0 to 64, and before W7
//
// Invariants:
// - An access is in one list: that of a region, or that below another access.
// - An access below X lies inside the region of X, and belongs to the task of X or to a task that
//   is ordered before it.
//
// A new access A is compared with the lists of all regions that overlap its own. If A comes after
// X, it also comes after everything below X, so the search skips X and the accesses below it.
// Otherwise A and X conflict if they share bytes and at least one of them writes. The search then
// continues below X, because accesses there may conflict with A too.
//
// Then A is inserted. A writer takes over the accesses of all regions that its region covers.
// Accesses that are ordered before it move below it; the others join its list. A reader joins the
// list of exactly its region, and only the newest reader there can go below it. So a region that
// many ordered tasks read and write keeps a short list, however long the log is.
#include "conflicts.hpp"

#include "index.hpp"
#include "overlap.hpp"

namespace pto::insight {
namespace {

using engine::RegionPlace;
using engine::RegionRemoval;
using engine::RegionState;

class ConflictFinder {
 public:
  ConflictFinder(const LogTables& log, const Reachability& order, uint64_t limit)
      : log_(log),
        order_(order),
        limit_(limit),
        writers_(log.accesses()),
        readers_(log.accesses()),
        entries_(log.accesses()) {}

  Conflicts find() {
    for (uint32_t task = 0; task < log_.tasks() && result_.is_complete; ++task) {
      for (uint32_t access = log_.first_access(task); access < log_.end_access(task); ++access) {
        if (log_.region(access).is_key()) continue;
        visit(writers_, access);
        if (writes(log_.tag(access))) visit(readers_, access);
      }
      for (uint32_t access = log_.first_access(task); access < log_.end_access(task); ++access) {
        if (log_.region(access).is_key()) continue;
        if (writes(log_.tag(access))) {
          insert_writer(access);
        } else {
          insert_reader(access);
        }
      }
    }
    return std::move(result_);
  }

 private:
  // An access in the index. A node has a list of them, and each has a list of those below it.
  struct Entry {
    uint32_t next = kNone;
    uint32_t below = kNone;
  };
  using Index = HostIndex<uint32_t>;  // of each region: the first entry of its list

  struct Keep {
    RegionState state(const uint32_t&) const { return RegionState::kLive; }
    void removed(const uint32_t&, RegionRemoval) const {}
  };

  // Moves the entries of regions that a writer covers to the writer.
  struct Move {
    ConflictFinder& finder;
    uint32_t access;
    RegionState state(const uint32_t&) const { return RegionState::kLive; }
    void removed(const uint32_t& first, RegionRemoval) const { finder.move(first, access); }
  };

  void visit(Index& index, uint32_t access) {
    RegionPlace place;
    Keep policy;
    index->find(log_.region(access), place, policy,
                [&](uint32_t first, bool) { visit_list(first, access); });
  }

  void visit_list(uint32_t first, uint32_t access) {
    pending_.clear();
    pending_.push_back(first);
    while (!pending_.empty() && result_.is_complete) {
      uint32_t entry = pending_.back();
      pending_.pop_back();
      for (; entry != kNone; entry = entries_[entry].next) {
        if (order_.is_before(log_.task_of(entry), log_.task_of(access))) continue;
        report(entry, access);
        if (entries_[entry].below != kNone) pending_.push_back(entries_[entry].below);
      }
    }
  }

  void report(uint32_t earlier, uint32_t later) {
    if (!writes(log_.tag(earlier)) && !writes(log_.tag(later))) return;
    const SharedBytes shared = shared_bytes(log_.region(earlier), log_.region(later));
    if (!shared.any()) return;
    if (result_.found.size() == limit_) {
      result_.is_complete = false;
      return;
    }
    result_.found.push_back({earlier, later, shared.first, shared.last, shared.count});
  }

  void insert_writer(uint32_t access) {
    loose_ = access;  // the list of the node begins with the access itself
    Move policy{*this, access};
    RegionPlace of_readers;
    readers_->remove_covered(log_.region(access), of_readers, policy);
    RegionPlace place;
    const uint32_t node = writers_->replace(log_.region(access), place, policy, false);
    writers_->value(node) = loose_;
  }

  void move(uint32_t first, uint32_t access) {
    for (uint32_t entry = first; entry != kNone;) {
      const uint32_t next = entries_[entry].next;
      const uint32_t task = log_.task_of(entry);
      const bool is_before =
          task == log_.task_of(access) || order_.is_before(task, log_.task_of(access));
      uint32_t& list = is_before ? entries_[access].below : loose_;
      entries_[entry].next = list;
      list = entry;
      entry = next;
    }
  }

  // Only the newest reader of the region is compared: readers without an order stay in the list.
  void insert_reader(uint32_t access) {
    RegionPlace place;
    Keep policy;
    bool is_new;
    uint32_t& first =
        readers_->value(readers_->obtain(log_.region(access), place, policy, &is_new));
    if (is_new) first = kNone;
    if (first != kNone && order_.is_before(log_.task_of(first), log_.task_of(access))) {
      const uint32_t older = first;
      first = entries_[older].next;
      entries_[older].next = kNone;
      entries_[access].below = older;
    }
    entries_[access].next = first;
    first = access;
  }

  const LogTables& log_;
  const Reachability& order_;
  const uint64_t limit_;
  Index writers_;
  Index readers_;
  std::vector<Entry> entries_;  // one for each access
  std::vector<uint32_t> pending_;
  uint32_t loose_ = kNone;
  Conflicts result_;
};

}  // namespace

Conflicts find_conflicts(const LogTables& log, const Reachability& order, uint64_t limit) {
  return ConflictFinder(log, order, limit).find();
}

}  // namespace pto::insight
