#include "driver/python_engine.hpp"
#include "text.hpp"

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

namespace pto::hierarchy {
namespace {

namespace nb = nanobind;

nb::tuple tuple_of(nb::list list) {
  return nb::steal<nb::tuple>(PyList_AsTuple(list.ptr()));
}

// Creates Python event objects for an engine.
class Events {
 public:
  template <class... Fields>
  nb::object event(const char* name, Fields&&... fields) const {
    return module_.attr(name)(std::forward<Fields>(fields)...);
  }
  nb::object enumerator(const char* name, int value) const { return module_.attr(name)(value); }

  nb::object known_of(const Known& known) const {
    nb::list producers, owners;
    for (const Known::Producer& each : known.producers)
      producers.append(nb::make_tuple(each.distance, static_cast<int>(each.why)));
    for (const uint32_t distance : known.owners) owners.append(distance);
    return event("Known", tuple_of(producers), tuple_of(owners));
  }

  nb::object member_of(const Member& member) const {
    nb::list tensors;
    for (const Tensor& tensor : member.tensors) {
      tensors.append(event("Tensor", tensor.address, tensor.bytes,
                           enumerator("Tag", static_cast<int>(tensor.tag)), box_of(tensor.box),
                           tensor.child));
    }
    return event("Member", tuple_of(tensors));
  }

  nb::object box_of(const Box* box) const {
    if (!box) return nb::none();
    nb::list raw, low, extent;
    for (uint32_t i = 0; i < box->dims; ++i) {
      raw.append(box->raw[i]);
      low.append(box->low[i]);
      extent.append(box->extent[i]);
    }
    return event("Box", box->base, box->element_bytes, tuple_of(raw), tuple_of(low),
                 tuple_of(extent));
  }

  nb::object submit(const nb::dict& fields) const { return module_.attr("Submit")(**fields); }

 private:
  nb::object module_ = nb::module_::import_("pto_core.hierarchy.engine.events");
};

class PythonEngine : public Engine {
 public:
  explicit PythonEngine(nb::object engine) : engine_(std::move(engine)) {}

  void run_begin(Hazards hazards, Instructions& out) override {
    failed_.clear();
    poisoned_.clear();
    handle(events_.event("RunBegin", events_.enumerator("Hazards", static_cast<int>(hazards))),
           out);
  }
  void run_end(Instructions& out) override { handle(events_.event("RunEnd"), out); }
  void scope_begin() override { handle_quietly(events_.event("ScopeBegin")); }
  void scope_end(Instructions& out) override { handle(events_.event("ScopeEnd"), out); }
  void dispatch(Instructions& out) override { handle(events_.event("Dispatch"), out); }
  void child_ready(int32_t child, Instructions& out) override {
    handle(events_.event("ChildReady", child), out);
  }
  void child_lost(int32_t child, int64_t cause, uint64_t started, bool returns,
                  Instructions& out) override {
    handle(events_.event("ChildLost", child, cause, started, returns), out);
  }
  void deadline(int32_t child, uint64_t count, int64_t cause, Instructions& out) override {
    handle(events_.event("Deadline", child, count, cause), out);
  }
  void cancel(int64_t cause, Instructions& out) override {
    handle(events_.event("Cancel", cause), out);
  }
  void completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause,
                  Instructions& out) override {
    try {
      handle(events_.event("Completion", child, count,
                           events_.enumerator("Outcome", static_cast<int>(outcome)), cause),
             out);
    } catch (nb::python_error& error) {
      if (!error.matches(nb::module_::import_("pto_core.errors").attr("ProtocolError"))) throw;
      throw Refusal(Refusal::Kind::kProtocol, nb::cast<std::string>(nb::str(error.value())));
    }
  }

  Submitted submit(const Submission& submission, Instructions& out) override {
    nb::list members, pins, after;
    for (const Member& member : submission.members) members.append(events_.member_of(member));
    for (const int32_t pin : submission.pins) pins.append(pin);
    for (const int64_t producer : submission.after) after.append(producer);
    nb::dict fields;
    fields["members"] = tuple_of(members);
    fields["pins"] = tuple_of(pins);
    fields["after"] = tuple_of(after);
    fields["is_hint"] = submission.is_hint;
    fields["retries"] = submission.retries;
    fields["timeout_ms"] = submission.timeout_ms;
    fields["kind"] = events_.enumerator("Kind", static_cast<int>(submission.kind));
    if (submission.known) fields["known"] = events_.known_of(*submission.known);
    nb::object addresses;
    const Submitted answer = handle(events_.submit(fields), out, &addresses);
    size_t next = 0;
    for (const Member& member : submission.members) {
      for (Tensor& tensor : member.tensors) {
        if (answer.task != kNone && tensor.tag == Tag::kOutput && tensor.address == 0)
          tensor.address = nb::cast<uint64_t>(addresses[next++]);
      }
    }
    return answer;
  }

  Submitted allocate(uint64_t bytes, uint64_t* address, Instructions& out) override {
    nb::object addresses;
    const Submitted answer = handle(events_.event("Allocate", bytes), out, &addresses);
    if (answer.task != kNone) *address = nb::cast<uint64_t>(addresses[0]);
    return answer;
  }

  bool is_quiescent() const override { return nb::cast<bool>(engine_.attr("is_quiescent")()); }

  bool deadlock(Deadlock* proof) const override {
    const nb::object found = engine_.attr("deadlock")();
    if (found.is_none()) return false;
    proof->ring = nb::cast<uint32_t>(found.attr("ring"));
    proof->requested = nb::cast<uint64_t>(found.attr("requested"));
    proof->held = nb::cast<uint64_t>(found.attr("held"));
    proof->size = nb::cast<uint64_t>(found.attr("size"));
    proof->oldest_task = nb::cast<int64_t>(found.attr("oldest_task"));
    proof->open_scope = nb::cast<int32_t>(found.attr("open_scope"));
    return true;
  }

  std::vector<std::pair<int64_t, int64_t>> failures() const override { return failed_; }
  std::vector<std::pair<int64_t, int64_t>> poisonings() const override { return poisoned_; }

 private:
  void handle_quietly(const nb::object& event) {
    Instructions none;
    handle(event, none);
  }

  Submitted handle(const nb::object& event, Instructions& out, nb::object* addresses = nullptr) {
    Submitted answer;
    for (nb::handle each : engine_.attr("handle")(event)) {
      const std::string name = nb::cast<std::string>(each.type().attr("__name__"));
      if (name == "Submitted") {
        answer.task = nb::cast<int64_t>(each.attr("task"));
        if (addresses) *addresses = each.attr("addresses");
      } else if (name == "Blocked") {
        answer.ring = nb::cast<uint32_t>(each.attr("ring"));
        answer.requested = nb::cast<uint64_t>(each.attr("requested"));
        answer.used = nb::cast<uint64_t>(each.attr("used"));
        answer.size = nb::cast<uint64_t>(each.attr("size"));
      } else {
        out.push_back(instruction_of(name, each));
      }
    }
    return answer;
  }

  Instruction instruction_of(const std::string& name, nb::handle each) {
    Instruction instruction{};
    if (name == "Send") {
      instruction.what = Instruction::What::kSend;
      read_send(each, &instruction);
    } else if (name == "TaskFinished") {
      instruction.what = Instruction::What::kTaskFinished;
      instruction.task = nb::cast<int64_t>(each.attr("task"));
      instruction.result = static_cast<Result>(nb::cast<int>(each.attr("result")));
      instruction.cause = nb::cast<int64_t>(each.attr("cause"));
      instruction.root = nb::cast<int64_t>(each.attr("root"));
    } else if (name == "SpaceFreed") {
      instruction.what = Instruction::What::kRoomFreed;
      instruction.ring = nb::cast<uint16_t>(each.attr("ring"));
    } else if (name == "EndChild") {
      instruction.what = Instruction::What::kEndChild;
      instruction.child = nb::cast<int32_t>(each.attr("child"));
      instruction.cause = nb::cast<int64_t>(each.attr("cause"));
    } else if (name == "RunFinished") {
      instruction.what = Instruction::What::kRunFinished;
      failed_ = pairs_of(each.attr("failed"));
      poisoned_ = pairs_of(each.attr("poisoned"));
    } else {
      instruction.what = regions_instruction(name);
      instruction.task = nb::cast<int64_t>(each.attr("task"));
    }
    return instruction;
  }

  static Instruction::What regions_instruction(const std::string& name) {
    if (name == "SaveRegions") return Instruction::What::kSaveRegions;
    if (name == "RestoreRegions") return Instruction::What::kRestoreRegions;
    if (name == "DropRegions") return Instruction::What::kDropRegions;
    throw Refusal(Refusal::Kind::kInternal,
                  "the engine of the Worker returned an object of the type " + name +
                      ", which is not an instruction; report it to the author of the engine");
  }

  static void read_send(nb::handle each, Instruction* instruction) {
    instruction->child = nb::cast<int32_t>(each.attr("child"));
    instruction->count = nb::cast<uint64_t>(each.attr("count"));
    instruction->task = nb::cast<int64_t>(each.attr("task"));
    instruction->member = nb::cast<int32_t>(each.attr("member"));
    const nb::object requirement = each.attr("requirement");
    instruction->required_child = static_cast<int32_t>(kNone);
    if (requirement.is_none()) return;
    instruction->required_child = nb::cast<int32_t>(requirement.attr("child"));
    instruction->required_count = nb::cast<uint64_t>(requirement.attr("count"));
  }

  static std::vector<std::pair<int64_t, int64_t>> pairs_of(const nb::object& pairs) {
    std::vector<std::pair<int64_t, int64_t>> result;
    for (nb::handle pair : pairs)
      result.emplace_back(nb::cast<int64_t>(pair[0]), nb::cast<int64_t>(pair[1]));
    return result;
  }

  const Events events_;
  nb::object engine_;
  std::vector<std::pair<int64_t, int64_t>> failed_, poisoned_;
};

}  // namespace

std::unique_ptr<Engine> make_python_engine(nanobind::object engine) {
  return std::make_unique<PythonEngine>(std::move(engine));
}

}  // namespace pto::hierarchy
