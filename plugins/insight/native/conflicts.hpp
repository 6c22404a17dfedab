// The pairs of accesses that touch the same bytes, at least one of which writes, of tasks that
// nothing orders.
//
// Nothing is excepted: OUTPUT_EXISTING counts as a write, NO_DEP as a read. An access that a later
// one covers, and that is ordered before it, hangs below it: a task that comes after the later one
// also comes after the earlier one. So the earlier one is visited only for tasks that the later one
// does not precede, and the cost follows the number of overlaps and of reported pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "reachability.hpp"
#include "tables.hpp"

namespace pto::insight {

struct Conflict {
  uint32_t first;  // accesses; that of the earlier submit first
  uint32_t second;
  uint64_t first_byte;
  uint64_t last_byte;  // address after the last shared byte
  uint64_t shared_bytes;
};
static_assert(sizeof(Conflict) == 32);

struct Conflicts {
  std::vector<Conflict> found;
  bool is_complete = true;  // whether the search ended before the limit
};

Conflicts find_conflicts(const LogTables& log, const Reachability& order, uint64_t limit);

}  // namespace pto::insight
