// Bindings for the child's side: the loop that a child runs, and the progress table that it writes.

#include <nanobind/nanobind.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bindings.hpp"
#include "child/child_loop.hpp"
#include "endpoint/python_ends.hpp"
#include "errors.hpp"
#include "progress_table.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

ProgressTable progress_table_at(uintptr_t address) {
  return ProgressTable(
      // NOLINT: an address that create_progress_table() returned
      reinterpret_cast<void*>(address));
}

ChildRecord& record_at(uintptr_t address, int32_t child) {
  const ProgressTable progress = progress_table_at(address);
  if (child < 0 || child >= static_cast<int32_t>(progress.children()))
    core::raise_usage("child " + std::to_string(child) +
                      " does not exist: the progress table has " +
                      std::to_string(progress.children()));
  return progress.child(child);
}

Digest digest_of(const nb::bytes& bytes) {
  Digest digest;
  if (bytes.size() != digest.size())
    core::raise_usage("a digest has " + std::to_string(digest.size()) + " bytes, not " +
                      std::to_string(bytes.size()));
  std::memcpy(digest.data(), bytes.c_str(), digest.size());
  return digest;
}

void make_loop(ChildLoop* place, uintptr_t table, uintptr_t end, uintptr_t progress_tables,
               int32_t child, uint32_t largest_frame_bytes) {
  record_at(progress_tables, child);
  const ProgressTable progress = progress_table_at(progress_tables);
  const auto* api = reinterpret_cast<const pto_transport_api*>(table);                   // NOLINT
  auto opened = std::make_unique<ChildEnd>(*api, reinterpret_cast<pto_child_end*>(end),  // NOLINT
                                           progress, child, api == &python_transport());
  if (largest_frame_bytes <= 2 * sizeof(pto_frame))
    core::raise_usage("the limit of " + std::to_string(largest_frame_bytes) +
                      " bytes for a frame is too small for the message of a failure; pass "
                      "queue_bytes of 1024 or more");
  new (place) ChildLoop(progress, child, std::move(opened),
                        largest_frame_bytes - static_cast<uint32_t>(sizeof(pto_frame)));
}

nb::dict record_of(uintptr_t address, int32_t child) {
  const ChildRecord& record = record_at(address, child);
  nb::dict found;
  found["started"] = record.started.load();
  found["completed"] = record.completed.load();
  found["may_have_begun"] = record.may_have_begun.load();
  found["started_ns"] = record.started_ns.load();
  const uint64_t control = record.control.load();
  found["control"] = control ? nb::object(nb::int_(control - 1)) : nb::none();
  found["pid"] = record.pid.load();
  found["ending"] = record.ending.load();
  return found;
}

void set_path(uintptr_t address, int32_t child, const std::string& path) {
  const ProgressTable progress = progress_table_at(address);
  char (&to)[64] = child < 0 ? state_of(progress).path : state_of(progress, child).path;
  const std::string end = path.substr(path.size() - std::min(path.size(), sizeof to - 1));
  std::memcpy(to, end.c_str(), end.size() + 1);
}

nb::object text_of(const char* text, size_t bytes) {
  return nb::cast(std::string(text, strnlen(text, bytes)));
}

nb::dict child_state(const ProgressTable& progress, int32_t child) {
  const LiveChild& state = state_of(progress, child);
  const ChildRecord& record = progress.child(child);
  nb::dict found;
  found["child"] = child;
  found["path"] = text_of(state.path, sizeof state.path);
  found["pid"] = record.pid.load();
  found["presence"] = state.presence;
  found["sent"] = state.sent;
  found["started"] = record.started.load();
  found["completed"] = record.completed.load();
  found["count"] = state.count;
  found["since_ns"] = state.since_ns;
  found["task"] = state.task;
  found["callable"] = text_of(state.callable, sizeof state.callable);
  found["file"] = text_of(state.file, sizeof state.file);
  found["line"] = state.line;
  return found;
}

nb::dict worker_state(const ProgressTable& progress) {
  const LiveWorker& state = state_of(progress);
  nb::dict found;
  found["path"] = text_of(state.path, sizeof state.path);
  found["time_ns"] = state.time_ns;
  found["submitted"] = state.submitted;
  found["finished"] = state.finished;
  found["failed"] = state.failed;
  found["poisoned"] = state.poisoned;
  found["waiting"] = state.waiting;
  found["in_flight"] = state.in_flight;
  nb::list children;
  for (int32_t child = 0; child < static_cast<int32_t>(progress.children()); ++child)
    if (state_of(progress, child).path[0] != 0) children.append(child_state(progress, child));
  found["children"] = children;
  return found;
}

bool read_at(int file, void* to, size_t bytes, size_t offset) {
  return pread(file, to, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// Copy the table of another process until no field of its state has changed meanwhile.
bool read_whole(int file, uint32_t children, std::vector<LiveChild>& memory) {
  constexpr int kAttempts = 1000;
  const uint64_t bytes = ProgressTable::bytes_needed(children);
  const uint64_t place = ProgressTable::state_offset(children);
  memory.resize(bytes / sizeof(LiveChild) + 1);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    uint64_t before = 0, after = 0;
    if (!read_at(file, &before, sizeof before, place) || !read_at(file, memory.data(), bytes, 0) ||
        !read_at(file, &after, sizeof after, place))
      return false;
    if (before == after && after % 2 == 0)
      return ProgressTable(memory.data()).children() == children;
    std::this_thread::yield();
  }
  return false;
}

nb::object read_state(int file) {
  constexpr uint32_t kMostChildren = 1 << 16;
  std::vector<LiveChild> head(1);
  static_assert(sizeof(LiveChild) >= sizeof(ProgressTableHeader));
  const ProgressTableHeader& header = ProgressTable(head.data()).header();
  if (!read_at(file, head.data(), sizeof header, 0) || header.magic != kStateMagic)
    return nb::none();
  nb::dict found;
  found["version"] = header.version;
  found["process"] = header.process;
  if (header.version != kStateVersion || header.children > kMostChildren) return found;
  std::vector<LiveChild> memory;
  if (!read_whole(file, header.children, memory)) return nb::none();
  found["worker"] = worker_state(ProgressTable(memory.data()));
  return found;
}

void bind_progress_table(nb::module_& module) {
  module.attr("STATE_VERSION") = kStateVersion;
  module.def("progress_table_path", &set_path, nb::arg("address"), nb::arg("child"),
             nb::arg("path"), "Set the path of a child, or of the Worker if `child` is negative.");
  module.def("read_state", &read_state, nb::arg("descriptor"),
             nb::sig("def read_state(descriptor: int) -> dict[str, typing.Any] | None"),
             "Return what the Worker does whose memory is this file: version, process, and, if the "
             "version is STATE_VERSION, worker. None if the file is no such memory, or if its "
             "state changed during each of many attempts to read it.");
  module.def("progress_table_bytes", &ProgressTable::bytes_needed, nb::arg("children"),
             "Return the size of a Worker's progress table: shared, zeroed memory, aligned to 64 "
             "bytes.");
  module.def(
      "create_progress_table",
      [](uintptr_t address, uint32_t children, uint32_t cores) {
        ProgressTable::create(reinterpret_cast<void*>(address), children, cores);  // NOLINT
      },
      nb::arg("address"), nb::arg("children"), nb::arg("cores"),
      "Create a progress table in such memory, before the first fork. `cores`: the number that the "
      "Worker may use.");
  module.def(
      "progress_table_parent_bell",
      [](uintptr_t address) {
        return reinterpret_cast<uintptr_t>(progress_table_at(address).parent_bell());
      },
      nb::arg("address"), "Return the address of the doorbell on which the parent sleeps.");
  module.def(
      "progress_table_child_bell",
      [](uintptr_t address, int32_t child) {
        return reinterpret_cast<uintptr_t>(&record_at(address, child).bell);
      },
      nb::arg("address"), nb::arg("child"),
      "Return the address of the doorbell on which a child "
      "sleeps.");
  module.def(
      "progress_table_record", &record_of, nb::arg("address"), nb::arg("child"),
      nb::sig("def progress_table_record(address: int, child: int) -> dict[str, typing.Any]"),
      "Return the counts and the state of a child, for messages.");
}

}  // namespace

void bind_child(nb::module_& module) {
  bind_progress_table(module);
  nb::class_<ChildLoop>(module, "ChildLoop",
                        "The loop that a child process runs until its parent "
                        "closes the connection.")
      .def("__init__", &make_loop, nb::arg("table"), nb::arg("end"), nb::arg("progress_tables"),
           nb::arg("child"), nb::arg("largest_frame_bytes"),
           "Take ownership of an open end, and close it when the loop has ended or is destroyed.")
      .def(
          "add",
          [](ChildLoop& loop, const nb::bytes& digest, nb::object callable, bool takes_arguments) {
            loop.add(digest_of(digest), {std::move(callable), takes_arguments});
          },
          nb::arg("digest"), nb::arg("callable"), nb::arg("takes_arguments") = true,
          "Add a callable, or replace the callable with the same digest. A task calls it with a "
          "view of its arguments, or without arguments if `takes_arguments` is False.")
      .def(
          "forget",
          [](ChildLoop& loop, const nb::bytes& digest) { return loop.forget(digest_of(digest)); },
          nb::arg("digest"), "Remove a callable; return whether it existed.")
      .def("stop", &ChildLoop::stop, "End the loop after the current control frame.")
      .def_prop_ro("largest_answer", &ChildLoop::largest_answer,
                   "The maximum size of a reply in bytes.")
      .def("run", &ChildLoop::run, nb::arg("control"), nb::arg("invoke") = nb::none(),
           "Run until stop() is called (return True) or the parent closes (return False).\n\n"
           "`control(bytes) -> bytes` answers control frames; its exceptions end the loop. "
           "`invoke(callable, view or None, config)` runs tasks; if it is None, the callable is "
           "called directly. Raises ProtocolError for invalid frames.");
}

}  // namespace pto::worker
