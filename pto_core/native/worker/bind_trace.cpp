// The methods of Driver that trace the runs of a Worker.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include "bindings.hpp"
#include "driver/worker_driver.hpp"
#include "text.hpp"
#include "trace/child_ring.hpp"

namespace pto::worker {
namespace {

nb::tuple pair_of(const pto_clock_pair& pair) {
  return nb::make_tuple(pair.ticks, pair.ns);
}

void begin_trace(Driver& driver, const WorkerTraceSettings& settings) {
  const Role role = driver.ask();
  DriverCore& core = role->core;
  core.check_open();
  if (core.tracer.is_on())
    throw Refusal(Refusal::Kind::kUsage,
                  "this Worker is being traced already; end that trace first");
  core.tracer.begin(settings, core.configuration.trace);
  for (uint32_t callable = 0; callable < core.catalogue.callables(); ++callable)
    core.tracer.callable_added(core.catalogue.name(callable));
  core.engine->set_tracer(&core.tracer);
  core.flags.traces_waits = core.tracer.records(PTO_TRACE_WAITS);
  if (core.flags.open_runs > 0) core.tracer.run_began(core.book.outcomes()->first_task);
}

WorkerRecords end_trace(Driver& driver) {
  const Role role = driver.ask();
  DriverCore& core = role->core;
  core.engine->set_tracer(nullptr);
  core.flags.traces_waits = false;
  return core.tracer.end();
}

nb::list callables_of(WorkerDriver& self) {
  std::vector<std::string> names;
  {
    const Role role = self.driver().ask();
    const Catalogue& catalogue = role->core.catalogue;
    for (uint32_t callable = 0; callable < catalogue.callables(); ++callable)
      names.push_back(catalogue.name(callable));
  }
  nb::list found;
  for (const std::string& name : names) found.append(nb::cast(name));
  return found;
}

nb::tuple trace_end(WorkerDriver& self) {
  const WorkerRecords ended = or_error([&] { return end_trace(self.driver()); });
  nb::list lost, runs;
  for (const uint64_t count : ended.lost) lost.append(count);
  for (const TracedRun& run : ended.runs) runs.append(nb::make_tuple(run.first_task, run.clock));
  return nb::make_tuple(nb::bytes(ended.records.data(), ended.records.size()), lost,
                        trace_clock_source(), pair_of(ended.first), pair_of(ended.last), runs,
                        callables_of(self), nb::bytes(ended.kinds.data(), ended.kinds.size()));
}

}  // namespace

void bind_trace(nb::module_& module, nb::class_<WorkerDriver>& driver) {
  module.def("trace_bytes", &trace_bytes, nb::arg("children"), nb::arg("records"),
             "Return the size of the memory for the traces of a Worker: shared memory, aligned to "
             "64 bytes, with rings of this number of records.");
  driver
      .def(
          "trace_begin",
          [](WorkerDriver& self, int32_t level, uint64_t most_records,
             std::pair<uint64_t, uint64_t> window, const std::optional<std::string>& flight) {
            const WorkerTraceSettings settings{(1u << level) - 1,  most_records,
                                               window.first,       window.second,
                                               flight.has_value(), flight.value_or("")};
            or_error([&] { begin_trace(self.driver(), settings); });
          },
          nb::arg("level"), nb::arg("most_records"), nb::arg("window"), nb::arg("flight").none(),
          "Trace the later events, also those of an open run, inside the window of CLOCK_MONOTONIC "
          "in ns, and for some ms around it. `flight`: keep the last records of each track; this "
          "text "
          "describes the Worker for the reader of its file. "
          "Raises UsageError if a trace has begun. No child writes its ring yet.")
      .def("trace_end", &trace_end,
           nb::sig("def trace_end(self) -> tuple[bytes, list[int], int, tuple[int, int], "
                   "tuple[int, int], list[tuple[int, int]], list[str], bytes]"),
           "End the trace. Return its records, the number of dropped records by track, the source "
           "of the clock, its first and last reading (ticks, CLOCK_MONOTONIC), the first task and "
           "the clock of each run, the names of the callables, and the kinds of arguments. If no "
           "trace has begun, there are no records.")
      .def(
          "trace_place",
          [](WorkerDriver& self, uint32_t code, int32_t instruction) {
            return self.submits().places().file_and_line({code, instruction});
          },
          nb::arg("code"), nb::arg("instruction"),
          nb::sig("def trace_place(self, code: int, instruction: int) -> "
                  "tuple[str, int | None] | tuple[None, None]"),
          "Return the file and the line of a submit in the records of a trace.");
}

}  // namespace pto::worker
