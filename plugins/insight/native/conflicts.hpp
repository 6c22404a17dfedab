// The conflicts of a program: pairs of accesses of two unordered tasks to the same bytes, of which
// at least one access writes.
//
// There are no exceptions: OUTPUT_EXISTING counts as a write, NO_DEP as a read. The cost is
// proportional to the number of overlaps and of reported pairs; conflicts.cpp explains the search.
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
