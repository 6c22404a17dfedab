#include "edges.hpp"

#include "clusters.hpp"
#include "index.hpp"
#include "overlap.hpp"

namespace pto::insight {
namespace {

using engine::RegionPlace;
using engine::RegionRemoval;
using engine::RegionState;

// A value stays in the index until a later writer covers it.
template <class Value>
struct KeepAll {
  RegionState state(const Value&) const { return RegionState::kLive; }
  void removed(const Value&, RegionRemoval) const {}
};

// A list stays in the index until it is empty.
struct KeepLists : KeepAll<uint32_t> {
  RegionState state(uint32_t newest) const {
    return newest == kNone ? RegionState::kRetired : RegionState::kLive;
  }
};

class EdgeFinder {
 public:
  EdgeFinder(const LogTables& log, bool is_full, uint32_t blocks)
      : log_(log),
        is_full_(is_full),
        writers_(log.accesses()),
        readers_(log.accesses()),
        other_writers_(log.accesses()),
        users_(log.accesses()),
        clusters_(blocks),
        event_(log.events().begin()) {}

  Edges find() {
    for (uint32_t task = 0; task < log_.tasks(); ++task) has_host_ |= log_.is_of_host(task);
    for (uint32_t task = 0; task < log_.tasks(); ++task) {
      take_events(task);
      if (host_ != kNone) add_plain(host_, task, Why::kHost);
      look_up(task);
      insert(task);
      if (log_.is_of_host(task)) host_ = task;
    }
    take_events(log_.tasks());
    return std::move(edges_);
  }

 private:
  struct Listed {
    uint32_t access;
    uint32_t older;  // the next older access of the same list; kNone ends the list
  };

  void take_events(uint32_t tasks) {
    for (; event_ != log_.events().end() && event_->tasks <= tasks; ++event_) take(*event_);
  }

  void take(const pto_logged_event& event) {
    switch (event.kind) {
      case PTO_LOG_EDGE:
        return add_plain(log_.index_of(event.first), log_.index_of(event.second), Why::kExplicit);
      case PTO_LOG_RETAINING_EDGE:
        return add_plain(log_.index_of(event.first), log_.index_of(event.second), Why::kRetaining);
      case PTO_LOG_LANE:
        return;
      case PTO_LOG_SCOPE_BEGIN:
        return clusters_.scope_begin();
      case PTO_LOG_SCOPE_END:
        return clusters_.scope_end();
      case PTO_LOG_CLUSTER:
        return clusters_.allocate(event.first);
      case PTO_LOG_CLUSTER_FREED:
        return clusters_.free(event.first);
      case PTO_LOG_ON_CLUSTER: {
        const uint32_t task = log_.index_of(event.second);
        return clusters_.put(event.first, task,
                             [&](uint32_t before) { add_plain(before, task, Why::kCluster); });
      }
      default:
        throw BadLog("an event of the log has an unknown kind");
    }
  }

  void look_up(uint32_t task) {
    for (uint32_t access = log_.first_access(task); access < log_.end_access(task); ++access) {
      const Tag tag = log_.tag(access);
      if (log_.is_fresh(access)) continue;
      if (log_.is_of_host(task) && writes(tag)) {
        find_users(access);
        continue;
      }
      const bool is_looked_up = log_.is_looked_up(access) && tag != Tag::kNoDep;
      const size_t before = edges_.reasons.size();
      if (reads(tag)) {
        const bool is_found = is_looked_up && find_writers(access, Why::kRead);
        if (!is_found && !is_written(access)) edges_.unwritten.push_back(access);
      } else if (is_full_ && is_looked_up && overwrites_in_order(access)) {
        find_writers(access, Why::kOverwrite);
      }
      add_owner(access, before);
      const bool may_follow = tag == Tag::kInout || overwrites_in_order(access);
      if (is_full_ && is_looked_up && may_follow) find_readers(access);
    }
  }

  // Return whether a task that overwrites memory waits for its earlier users in a full run.
  bool overwrites_in_order(uint32_t access) const {
    const Tag tag = log_.tag(access);
    return tag == Tag::kOutput ||
           (tag == Tag::kOutputExisting && log_.is_of_2026_08(log_.task_of(access)));
  }

  // Add the edge to the owner of the memory, unless one of the reasons from `first` on is an edge
  // to this task.
  void add_owner(uint32_t access, size_t first) {
    const uint32_t owner = log_.owner_to_wait_for(access);
    if (owner == kNone) return;
    for (size_t known = first; known < edges_.reasons.size(); ++known) {
      if (edges_.reasons[known].first == log_.task_of(owner)) return;
    }
    add(owner, access, Why::kOwner, false);
  }

  // Return whether a writer overlaps the access, also if one of them takes no part in look-ups.
  bool is_written(uint32_t access) {
    bool found = false;
    for (HostIndex<uint32_t>* writers : {&writers_, &other_writers_}) {
      RegionPlace place;
      KeepAll<uint32_t> policy;
      (*writers)->find(log_.region(access), place, policy, [&](uint32_t, bool) { found = true; });
    }
    return found;
  }

  // Accesses of the host come one after the other, so the newest of them suffices.
  bool find_writers(uint32_t access, Why why) {
    bool found = false;
    uint32_t host = kNone;
    bool is_conservative = false;
    RegionPlace place;
    KeepAll<uint32_t> policy;
    writers_->find(log_.region(access), place, policy, [&](uint32_t writer, bool conservative) {
      found = true;
      if (!log_.is_of_host(log_.task_of(writer))) return add(writer, access, why, conservative);
      if (host != kNone && host > writer) return;
      host = writer;
      is_conservative = conservative;
    });
    if (host != kNone) add(host, access, why, is_conservative);
    return found;
  }

  void find_readers(uint32_t access) {
    find_listed(readers_, access, false, [](uint32_t) { return Why::kAntiDependence; });
  }

  // Tasks that are submitted later come after this access, and so after the users that it finds.
  // So no later access needs an edge to them.
  void find_users(uint32_t access) {
    find_listed(users_, access, true, [&](uint32_t user) {
      return writes(log_.tag(user)) ? Why::kOverwrite : Why::kAntiDependence;
    });
  }

  template <class WhyOf>
  void find_listed(HostIndex<uint32_t>& lists, uint32_t access, bool is_last, WhyOf why_of) {
    RegionPlace place;
    KeepLists policy;
    lists->find(log_.region(access), place, policy, [&](uint32_t& newest, bool conservative) {
      for (uint32_t index = newest; index != kNone; index = listed_[index].older) {
        const uint32_t earlier = listed_[index].access;
        add(earlier, access, why_of(earlier), conservative);
      }
      if (is_last) newest = kNone;
    });
  }

  void insert(uint32_t task) {
    for (uint32_t access = log_.first_access(task); access < log_.end_access(task); ++access) {
      const Tag tag = log_.tag(access);
      if (has_host_ && !log_.is_of_host(task) && log_.is_known_use(access)) {
        insert_listed(users_, access);
      }
      if (writes(tag)) {
        insert_writer(access);
      } else if (is_full_ && tag == Tag::kInput && log_.is_looked_up(access)) {
        insert_listed(readers_, access);
      }
    }
  }

  void insert_writer(uint32_t access) {
    KeepAll<uint32_t> policy;
    const Region& region = log_.region(access);
    if (!log_.is_looked_up(access)) {
      RegionPlace place;
      other_writers_->value(other_writers_->replace(region, place, policy, false)) = access;
      return;
    }
    if (is_full_) {
      RegionPlace place;
      readers_->remove_covered(region, place, policy);
    }
    RegionPlace place;
    writers_->value(writers_->replace(region, place, policy, false)) = access;
  }

  void insert_listed(HostIndex<uint32_t>& lists, uint32_t access) {
    RegionPlace place;
    KeepLists policy;
    bool is_new;
    uint32_t& newest = lists->value(lists->obtain(log_.region(access), place, policy, &is_new));
    if (is_new) newest = kNone;
    listed_.push_back({access, newest});
    newest = static_cast<uint32_t>(listed_.size() - 1);
  }

  void add(uint32_t earlier, uint32_t later, Why why, bool conservative) {
    const SharedBytes shared = shared_bytes(log_.region(earlier), log_.region(later));
    edges_.reasons.push_back({log_.task_of(earlier), log_.task_of(later), earlier, later, why,
                              conservative, shared.first, shared.count});
  }

  void add_plain(uint32_t first, uint32_t second, Why why) {
    edges_.reasons.push_back({first, second, kNone, kNone, why, false, 0, 0});
  }

  const LogTables& log_;
  const bool is_full_;
  HostIndex<uint32_t> writers_;        // of each region: its last writer
  HostIndex<uint32_t> readers_;        // of each region: index in listed_ of its newest reader
  HostIndex<uint32_t> other_writers_;  // writers that take no part in look-ups
  HostIndex<uint32_t> users_;          // as readers_, uses that no write of the host has found
  std::vector<Listed> listed_;
  bool has_host_ = false;  // whether the log has accesses of the host
  uint32_t host_ = kNone;  // the last one so far
  ClusterOrder clusters_;
  std::span<const pto_logged_event>::iterator event_;
  Edges edges_;
};

}  // namespace

Edges find_edges(const LogTables& log, bool is_full, uint32_t blocks) {
  return EdgeFinder(log, is_full, blocks).find();
}

}  // namespace pto::insight
