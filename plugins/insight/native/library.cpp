// The C interface of LogAnalysis, for pto_insight.graphs.analysis.
//
// No exception crosses it: pto_analysis_open writes the text of an exception, the other functions
// cannot fail for the arguments that their comments permit. A table is a pointer to packed rows
// that is valid until the analysis is closed.

#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "log_analysis.hpp"

namespace pto::insight {
namespace {

struct Analysis {
  LogAnalysis log;
  std::vector<uint64_t> extents;
  Conflicts conflicts;
};

template <class Row>
std::vector<Row> copied(const Row* rows, size_t count) {
  return count ? std::vector<Row>(rows, rows + count) : std::vector<Row>();
}

template <class Row>
size_t table(const std::vector<Row>& rows, const void** first) {
  *first = rows.data();
  return rows.size() * sizeof(Row);
}

}  // namespace
}  // namespace pto::insight

using pto::insight::Analysis;

#define PTO_EXPORT extern "C" __attribute__((visibility("default")))

// Return the analysis of a log, or null and a text in `problem`.
PTO_EXPORT Analysis* pto_analysis_open(const pto_logged_task* tasks, size_t task_count,
                                       const pto_tensor_data* accesses, size_t access_count,
                                       const pto_logged_event* events, size_t event_count,
                                       bool is_full, uint32_t blocks, char* problem,
                                       size_t problem_size) {
  try {
    using pto::insight::copied;
    return new Analysis{{copied(tasks, task_count), copied(accesses, access_count),
                         copied(events, event_count), is_full, blocks},
                        {},
                        {}};
  } catch (const std::exception& error) {
    std::snprintf(problem, problem_size, "%s", error.what());
    return nullptr;
  }
}

PTO_EXPORT void pto_analysis_close(Analysis* analysis) {
  delete analysis;
}

// Each of these returns the size of a table in bytes, and its address in `rows`.
PTO_EXPORT size_t pto_analysis_reasons(const Analysis* analysis, const void** rows) {
  return pto::insight::table(analysis->log.reasons(), rows);
}

PTO_EXPORT size_t pto_analysis_edges(const Analysis* analysis, const void** rows) {
  return pto::insight::table(analysis->log.edges(), rows);
}

PTO_EXPORT size_t pto_analysis_unwritten(const Analysis* analysis, const void** rows) {
  return pto::insight::table(analysis->log.unwritten(), rows);
}

PTO_EXPORT size_t pto_analysis_extents(Analysis* analysis, const void** rows) {
  analysis->extents = analysis->log.extents();
  return pto::insight::table(analysis->extents, rows);
}

// The rows are valid until the next call. `is_complete` is false if there are more than `limit`.
PTO_EXPORT size_t pto_analysis_conflicts(Analysis* analysis, uint64_t limit, const void** rows,
                                         bool* is_complete) {
  analysis->conflicts = analysis->log.conflicts(limit);
  *is_complete = analysis->conflicts.is_complete;
  return pto::insight::table(analysis->conflicts.found, rows);
}

// Both tasks exist.
PTO_EXPORT bool pto_analysis_is_before(const Analysis* analysis, uint32_t a, uint32_t b) {
  return analysis->log.is_before(a, b);
}
