// LogAnalysis, for pto_core.graphs.

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include <cstring>
#include <vector>

#include "analysis/log_analysis.hpp"
#include "bind_analysis.hpp"
#include "errors.hpp"
#include "gil.hpp"

namespace pto::core {
namespace {

template <class Row>
std::vector<Row> rows_of(nb::bytes packed) {
  if (packed.size() % sizeof(Row) != 0) throw BadLog("a table of the log has a wrong size");
  std::vector<Row> rows(packed.size() / sizeof(Row));
  if (!rows.empty()) std::memcpy(rows.data(), packed.c_str(), packed.size());
  return rows;
}

template <class Row>
nb::bytes packed(const std::vector<Row>& rows) {
  return nb::bytes(rows.data(), rows.size() * sizeof(Row));
}

void make(LogAnalysis* self, nb::bytes tasks, nb::bytes accesses, nb::bytes events, bool is_full,
          uint32_t blocks) {
  try {
    auto task_rows = rows_of<pto_logged_task>(tasks);
    auto access_rows = rows_of<pto_tensor_data>(accesses);
    auto event_rows = rows_of<pto_logged_event>(events);
    ReleasedGil released;
    new (self) LogAnalysis(std::move(task_rows), std::move(access_rows), std::move(event_rows),
                           is_full, blocks);
  } catch (const BadLog& error) {
    throw nb::value_error(error.what());
  }
}

}  // namespace

void bind_analysis(nb::module_& module) {
  nb::class_<LogAnalysis>(module, "LogAnalysis",
                          "The edges, the order and the conflicts of the tasks of an access log.")
      .def("__init__", &make, nb::arg("tasks"), nb::arg("accesses"), nb::arg("events"),
           nb::kw_only(), nb::arg("is_full"), nb::arg("blocks"))
      .def(
          "reasons", [](const LogAnalysis& self) { return packed(self.reasons()); },
          "Return the reasons of all edges, as rows of EdgeReason.")
      .def(
          "edges", [](const LogAnalysis& self) { return packed(self.edges()); },
          "Return the edges, as rows of Edge.")
      .def(
          "unwritten", [](const LogAnalysis& self) { return packed(self.unwritten()); },
          "Return the accesses that read what no earlier task wrote, as uint32.")
      .def(
          "extents", [](const LogAnalysis& self) { return packed(self.extents()); },
          "Return the first and the last address of each access, as uint64.")
      .def("is_before", &LogAnalysis::is_before, nb::arg("a"), nb::arg("b"),
           "Return whether task `a` ends before task `b` starts, in every run.")
      .def(
          "conflicts",
          [](const LogAnalysis& self, uint64_t limit) {
            Conflicts conflicts;
            {
              ReleasedGil released;
              conflicts = self.conflicts(limit);
            }
            return std::pair(packed(conflicts.found), conflicts.is_complete);
          },
          nb::arg("limit"),
          "Return the conflicts, as rows of Conflict, and whether these are all of them.");
}

}  // namespace pto::core
