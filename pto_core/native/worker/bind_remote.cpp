// Bindings for the ports of relay and gateway, and for the descriptor that reports rings of a
// doorbell.

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "bindings.hpp"
#include "child/child_end.hpp"
#include "errors.hpp"
#include "refusal.hpp"
#include "remote/bell_watch.hpp"
#include "remote/ports.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

template <class Call>
auto or_closed(Call call) {
  try {
    return guarded(call);
  } catch (const ParentClosed&) {
    core::raise_error("EndpointClosedError", "the parent closed the connection");
  }
}

nb::bytes bytes_of(const std::string& data) {
  return nb::bytes(data.data(), data.size());
}

std::string string_of(const nb::bytes& data) {
  return {data.c_str(), data.size()};
}

nb::object described(const ReceivedFrame& frame) {
  const pto_frame& head = frame.head;
  const bool has_requirement = head.required_count != 0;
  return nb::make_tuple(head.kind, frame.count, head.number,
                        nb::bytes(reinterpret_cast<const char*>(head.callable), PTO_DIGEST_BYTES),
                        head.config, head.flags, has_requirement ? head.required_child : -1,
                        head.required_count, bytes_of(frame.data));
}

nb::list receive(ChildPort& port, int32_t limit) {
  return or_closed([&] {
    nb::list frames;
    for (const ReceivedFrame& frame : port.receive(limit)) frames.append(described(frame));
    return frames;
  });
}

nb::tuple receive_plain(ChildPort& port, int32_t limit) {
  return or_closed([&] {
    const ReceivedTasks tasks = port.receive_plain(limit);
    return nb::make_tuple(tasks.first, tasks.count, bytes_of(tasks.packed), tasks.has_more);
  });
}

std::string_view after(const nb::bytes& packed, size_t offset) {
  return std::string_view(packed.c_str(), packed.size()).substr(std::min(offset, packed.size()));
}

nb::tuple described(const PlainTasks& tasks) {
  return nb::make_tuple(tasks.count, tasks.size);
}

bool submit_frame(ParentPort& port, uint16_t kind, uint64_t number, const nb::bytes& callable,
                  uint32_t config, uint16_t flags, uint64_t required_count, const nb::bytes& data) {
  if (callable.size() != PTO_DIGEST_BYTES)
    core::raise_usage("the digest of a callable must have 32 bytes");
  pto_frame head{};
  std::memcpy(head.callable, callable.c_str(), PTO_DIGEST_BYTES);
  head.required_child = required_count == 0 ? -1 : 0;
  head.required_count = required_count;
  head.config = config;
  head.number = number;
  head.bytes = static_cast<uint32_t>(data.size());
  head.kind = kind;
  head.flags = flags;
  return guarded([&] { return port.submit(head, string_of(data)); });
}

nb::list poll(ParentPort& port) {
  return guarded([&] {
    nb::list answers;
    for (const ReceivedAnswer& one : port.poll())
      answers.append(nb::make_tuple(one.kind, one.number, one.outcome, bytes_of(one.data)));
    return answers;
  });
}

void bind_child_port(nb::module_& module) {
  nb::class_<ChildPort>(module, "ChildPort",
                        "The child's end of a connection, for a relay. No call blocks.")
      .def(
          "__init__",
          [](ChildPort* place, uintptr_t table, uintptr_t end, uintptr_t progress_table,
             int32_t child) {
            new (place) ChildPort(*at<const pto_transport_api>(table), at<pto_child_end>(end),
                                  ProgressTable(at<void>(progress_table)), child);
          },
          nb::arg("table"), nb::arg("end"), nb::arg("progress_table"), nb::arg("child"),
          "Take ownership of an open end.")
      .def("receive", &receive, nb::arg("limit"),
           nb::sig("def receive(self, limit: int) -> list[tuple[int, int, int, bytes, int, int, "
                   "int, int, bytes]]"),
           "Return frames: kind, count, number, callable, config, flags, required child (or -1), "
           "required count, data.\n\nRaises EndpointClosedError and ProtocolError.")
      .def("receive_plain", &receive_plain, nb::arg("limit"),
           nb::sig("def receive_plain(self, limit: int) -> tuple[int, int, bytes, bool]"),
           "Return the next frames that are tasks without tensors and requirement.\n\nReturns the "
           "count of the first, their number, their packed bytes, and whether the queue may have "
           "more frames. Raises as `receive` does.")
      .def(
          "requirement",
          [](const ChildPort& port, uint64_t count, int32_t required_child,
             uint64_t required_count) {
            return static_cast<int>(
                guarded([&] { return port.requirement(count, required_child, required_count); }));
          },
          nb::arg("count"), nb::arg("required_child"), nb::arg("required_count"),
          "Return 0 for a requirement that is pending, 1 if it is met, 2 if it failed.")
      .def_prop_ro("completed", &ChildPort::completed, "The number of frames that have ended.")
      .def("left", &ChildPort::left, nb::arg("count"),
           "Record that frames up to `count` were sent to the other host.")
      .def("permit_silence", &ChildPort::permit_silence, nb::arg("duration_ns"),
           "Record that messages move, and how long silence is then no sign of a hang.")
      .def("started", &ChildPort::started, nb::arg("count"), nb::arg("age_ns"),
           "Record the newest frame that runs; it started `age_ns` ago.")
      .def("ended", &ChildPort::ended, nb::arg("succeeded"), nb::arg("count") = 1,
           "Record that the next `count` frames have ended, all with the same outcome.")
      .def(
          "answer",
          [](const ChildPort& port, uint64_t count, uint16_t outcome, const nb::bytes& data) {
            return or_closed([&] { return port.answer(count, outcome, string_of(data)); });
          },
          nb::arg("count"), nb::arg("outcome"), nb::arg("data"),
          "Answer a frame; return False if the parent has to poll first.\n\nFrames are answered in "
          "order.")
      .def(
          "reply",
          [](const ChildPort& port, uint64_t number, const nb::bytes& data) {
            return or_closed([&] { return port.reply(number, string_of(data)); });
          },
          nb::arg("number"), nb::arg("data"),
          "Reply to a control frame; return False if the parent has to poll first.")
      .def_prop_ro(
          "bell", [](const ChildPort& port) { return reinterpret_cast<uintptr_t>(port.bell()); },
          "The address of the bell that the parent and siblings ring.")
      .def("close", &ChildPort::close, "Close the end. A second call has no effect.");
}

void bind_parent_port(nb::module_& module) {
  nb::class_<ParentPort>(module, "ParentPort",
                         "The parent's end of a connection, for a gateway. No call blocks.")
      .def(
          "__init__",
          [](ParentPort* place, uintptr_t table, uintptr_t end, uintptr_t progress_table) {
            new (place) ParentPort(*at<const pto_transport_api>(table), at<pto_parent_end>(end),
                                   ProgressTable(at<void>(progress_table)));
          },
          nb::arg("table"), nb::arg("end"), nb::arg("progress_table"),
          "Take ownership of an open end. The progress table has one child.")
      .def("submit", &submit_frame, nb::arg("kind"), nb::arg("number"), nb::arg("callable"),
           nb::arg("config"), nb::arg("flags"), nb::arg("required_count"), nb::arg("data"),
           "Send a frame; return False if the queue has no free space.\n\nA `required_count` "
           "that is not 0 is the number of an earlier frame that must succeed first. Raises "
           "ProtocolError.")
      .def(
          "submit_plain",
          [](ParentPort& port, const nb::bytes& packed, size_t offset) {
            return guarded([&] { return described(port.submit_plain(after(packed, offset))); });
          },
          nb::arg("packed"), nb::arg("offset"),
          nb::sig("def submit_plain(self, packed: bytes, offset: int) -> tuple[int, int]"),
          "Send packed plain tasks from an offset on.\n\nReturns the number and the bytes of the "
          "tasks that the queue accepted. Raises ProtocolError.")
      .def("poll", &poll, nb::sig("def poll(self) -> list[tuple[int, int, int, bytes]]"),
           "Return answers: kind, number, outcome, data. Raises ProtocolError.")
      .def_prop_ro("started", &ParentPort::started, "The newest frame that has started.")
      .def("succeeded", &ParentPort::succeeded, nb::arg("count"),
           "Return the newest frame up to which all have succeeded; it is `count` or a later one.")
      .def_prop_ro("started_age_ns", &ParentPort::started_age_ns,
                   "The nanoseconds since the start of the newest frame.")
      .def_prop_ro(
          "bell", [](const ParentPort& port) { return reinterpret_cast<uintptr_t>(port.bell()); },
          "The address of the bell that the child rings.")
      .def("close", &ParentPort::close, "Close the end. A second call has no effect.");
}

}  // namespace

void bind_remote(nb::module_& module) {
  bind_child_port(module);
  bind_parent_port(module);
  module.attr("TASK_HEAD_FORMAT") = kTaskHeadFormat;
  module.def(
      "plain_tasks",
      [](const nb::bytes& packed, size_t offset, uint64_t number, uint64_t limit) {
        return described(plain_tasks(after(packed, offset), number, limit));
      },
      nb::arg("packed"), nb::arg("offset"), nb::arg("number"), nb::arg("limit"),
      nb::sig("def plain_tasks(packed: bytes, offset: int, number: int, limit: int) -> "
              "tuple[int, int]"),
      "Return the number and the bytes of the tasks without tensors and pieces at an offset.\n\n"
      "The first task has the number `number`; a task that requires itself or a later one ends the "
      "count.");
  nb::class_<BellWatch>(module, "BellWatch", "A descriptor that is readable after a ring.")
      .def(
          "__init__",
          [](BellWatch* place, uintptr_t bell) { new (place) BellWatch(at<pto_bell>(bell)); },
          nb::arg("bell"), "Watch the bell at an address. Its descriptor must be open already.")
      .def_prop_ro("descriptor", &BellWatch::descriptor)
      .def("arm", &BellWatch::arm,
           "Make the descriptor readable at the next ring. Check for work once more after this.");
  module.def(
      "open_bell_descriptor",
      [](uintptr_t bell) { return open_bell_descriptor(at<pto_bell>(bell)); }, nb::arg("bell"),
      "Open the descriptor of a bell before the processes that ring it start; return it.");
}

}  // namespace pto::worker
