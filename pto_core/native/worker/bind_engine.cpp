// The engine for tests in Python: it accepts numbers and returns tuples. pto_devkit.engine.native
// converts events and instructions.

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "bindings.hpp"
#include "driver/host.hpp"
#include "driver/near_inputs.hpp"
#include "engine/engine.hpp"
#include "errors.hpp"
#include "refusal.hpp"
#include "text.hpp"

namespace pto::worker {
namespace {

using NumberPairs = std::vector<std::pair<int64_t, int64_t>>;

Configuration configuration_of(const std::vector<std::pair<int, uint32_t>>& children,
                               const std::array<std::pair<uint64_t, uint64_t>, kRings>& rings,
                               bool repeats_lost) {
  Configuration configuration;
  for (const auto& [kind, window] : children) {
    configuration.children.push_back({static_cast<Kind>(kind), window});
  }
  for (uint32_t ring = 0; ring < kRings; ++ring) {
    configuration.rings[ring] = {rings[ring].first, rings[ring].second};
  }
  configuration.repeats_lost = repeats_lost;
  return configuration;
}

using CandidateList = std::vector<std::pair<int32_t, uint64_t>>;

int32_t pick(NearInputs& policy, const CandidateList& candidates, int32_t preferred, int64_t task) {
  if (candidates.empty()) core::raise_usage("candidates is empty; pass at least one child");
  std::vector<Candidate> children;
  for (const auto& [child, in_flight] : candidates) children.push_back({child, in_flight});
  return policy.pick(children, preferred, task);
}

}  // namespace

Policy policy_of(nb::object policy) {
  if (policy.is_none()) return {};
  if (nb::isinstance<NearInputs>(policy)) {
    return [near = nb::cast<std::shared_ptr<NearInputs>>(policy)](
               std::span<const Candidate> candidates, int32_t preferred, int64_t task) {
      return near->pick(candidates, preferred, task);
    };
  }
  const bool picks = nb::hasattr(policy, "pick");
  return [call = picks ? nb::object(policy.attr("pick")) : policy, picks](
             std::span<const Candidate> candidates, int32_t preferred, int64_t task) {
    const Deciding deciding;
    nb::list list;
    for (const Candidate& each : candidates)
      list.append(nb::make_tuple(each.child, each.in_flight));
    return nb::cast<int32_t>(picks ? call(list, preferred, task) : call(list, preferred));
  };
}

namespace {

// An instruction as a tuple: what, task, member, child, count, required child, required count,
// result, cause, root, ring.
using InstructionTuple = std::tuple<int, int64_t, int32_t, int32_t, uint64_t, int32_t, uint64_t,
                                    int, int64_t, int64_t, int>;
using Answer = std::vector<InstructionTuple>;

InstructionTuple tuple_of(const Instruction& each) {
  const bool is_send = each.what == Instruction::What::kSend;
  return {static_cast<int>(each.what),
          each.task,
          each.member,
          each.child,
          is_send ? each.count : 0,
          each.required_child,
          is_send ? each.required_count : 0,
          static_cast<int>(each.result),
          is_send ? kNone : each.cause,
          is_send ? kNone : each.root,
          each.ring};
}

// A box as a tuple: base, bytes of an element, raw, low, extent.
using Sizes = std::vector<uint64_t>;
using BoxTuple = std::tuple<uint64_t, uint32_t, Sizes, Sizes, Sizes>;
// A tensor as a tuple: address, bytes, tag, box, child.
using TensorTuple = std::tuple<uint64_t, uint64_t, int, std::optional<BoxTuple>, int32_t>;
using MemberList = std::vector<std::vector<TensorTuple>>;
using Addresses = std::vector<std::vector<uint64_t>>;

// The tensors of a submit in the form of the engine. The boxes must not move, because the tensors
// point to them.
class Arguments {
 public:
  explicit Arguments(const MemberList& members) {
    for (const std::vector<TensorTuple>& member : members) {
      std::vector<TensorAccess>& tensors = tensors_.emplace_back();
      for (const auto& [address, bytes, tag, box, child] : member) {
        tensors.push_back(
            {address, bytes, box ? box_of(*box) : nullptr, static_cast<Tag>(tag), child});
      }
    }
    for (std::vector<TensorAccess>& tensors : tensors_) members_.push_back({tensors});
  }

  std::span<const Member> members() const { return members_; }

  // Return the address of each tensor, by member.
  Addresses addresses() const {
    Addresses found;
    for (const std::vector<TensorAccess>& tensors : tensors_) {
      found.emplace_back();
      for (const TensorAccess& tensor : tensors) found.back().push_back(tensor.address);
    }
    return found;
  }

 private:
  // If the lists of a box differ in length, the box gets no dimensions, so that the engine refuses
  // it.
  const Box* box_of(const BoxTuple& given) {
    const auto& [base, element_bytes, raw, low, extent] = given;
    Box& box = *boxes_.emplace_back(std::make_unique<Box>());
    box.base = base;
    box.element_bytes = element_bytes;
    const bool is_even = raw.size() == low.size() && raw.size() == extent.size();
    box.dims = is_even ? static_cast<uint32_t>(raw.size()) : 0;
    for (uint32_t dim = 0; dim < box.dims && dim < kMaxDims; ++dim) {
      box.raw[dim] = raw[dim];
      box.low[dim] = low[dim];
      box.extent[dim] = extent[dim];
    }
    return &box;
  }

  std::vector<std::vector<TensorAccess>> tensors_;
  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<Member> members_;
};

// The engine, and its instructions for the current event.
class EngineCore {
 public:
  EngineCore(const std::vector<std::pair<int, uint32_t>>& children,
             const std::array<std::pair<uint64_t, uint64_t>, kRings>& rings, bool repeats_lost,
             nb::object policy)
      : engine_(guarded([&] {
          return std::make_unique<Engine>(configuration_of(children, rings, repeats_lost),
                                          policy_of(policy));
        })) {}

  Engine& engine() { return *engine_; }

  // Call event(engine, instructions) and return the instructions.
  template <class Event>
  Answer handle(Event&& event) {
    instructions_.clear();
    guarded([&] { event(engine(), instructions_); });
    Answer answer;
    for (const Instruction& each : instructions_) answer.push_back(tuple_of(each));
    return answer;
  }

 private:
  std::unique_ptr<Engine> engine_;
  Instructions instructions_;
};

// The result of a submit as a tuple: task or -1, ring, requested, used, size.
using SubmittedTuple = std::tuple<int64_t, uint32_t, uint64_t, uint64_t, uint64_t>;

SubmittedTuple tuple_of(const Submitted& submitted) {
  return {submitted.task, submitted.ring, submitted.requested, submitted.used, submitted.size};
}

// The captured edges of a task: (distance, reasons) of each producer, and the distance of each
// owner.
using KnownTuple = std::pair<std::vector<std::pair<uint32_t, uint8_t>>, std::vector<uint32_t>>;

std::tuple<SubmittedTuple, Addresses, Answer> submit_task(
    EngineCore& core, int kind, const MemberList& members, const std::vector<int32_t>& pins,
    bool is_hint, int32_t retries, uint32_t timeout_ms, const std::optional<KnownTuple>& given,
    const std::vector<int64_t>& after, uint32_t run) {
  const Arguments arguments(members);
  Submission submission;
  submission.kind = static_cast<Kind>(kind);
  submission.is_hint = is_hint;
  submission.retries = retries;
  submission.timeout_ms = timeout_ms;
  submission.members = arguments.members();
  submission.pins = pins;
  submission.after = after;
  submission.run = run;
  std::vector<Known::Producer> producers;
  Known known;
  if (given) {
    for (const auto& [distance, why] : given->first) producers.push_back({distance, why});
    known = {producers, given->second};
    submission.known = &known;
  }
  Submitted submitted;
  Answer answer = core.handle(
      [&](Engine& engine, Instructions& out) { submitted = engine.submit(submission, out); });
  return {tuple_of(submitted), arguments.addresses(), std::move(answer)};
}

std::tuple<SubmittedTuple, uint64_t, Answer> allocate(EngineCore& core, uint64_t bytes,
                                                      uint32_t run) {
  Submitted submitted;
  uint64_t address = 0;
  Answer answer = core.handle([&](Engine& engine, Instructions& out) {
    submitted = engine.allocate(bytes, &address, out, run);
  });
  return {tuple_of(submitted), address, std::move(answer)};
}

nb::dict dict_of(const Snapshot::Task& task) {
  nb::dict references;
  references["SELF"] = task.self;
  references["SCOPE"] = task.scope;
  references["CONSUMER"] = task.consumer;
  references["OWNER"] = task.owner;
  nb::dict found;
  found["state"] = kStateNames[static_cast<uint8_t>(task.state)];
  found["unfinished"] = task.unfinished;
  found["references"] = references;
  found["attempts"] = task.attempts;
  found["ended"] = task.ended;
  found["poison"] = task.poison;
  found["children"] = task.children;
  return found;
}

nb::dict dict_of(const Snapshot::EngineChild& child) {
  static constexpr const char* kNames[] = {"EXPECTED", "READY", "LOST"};
  nb::dict found;
  found["state"] = kNames[child.state];
  found["sent"] = child.sent;
  found["completed"] = child.completed;
  found["in_flight"] = child.in_flight;
  return found;
}

nb::dict dict_of(const Snapshot::Ring& ring) {
  nb::dict found;
  found["head"] = ring.head;
  found["used"] = ring.used;
  found["size"] = ring.size;
  return found;
}

nb::dict dict_of(const Snapshot::Run& run) {
  nb::dict found;
  found["is_open"] = run.is_open;
  found["is_ending"] = run.is_ending;
  found["cancelled"] = run.cancelled;
  found["tasks"] = run.tasks;
  found["unfinished"] = run.unfinished;
  found["failed"] = run.failed;
  found["poisoned"] = run.poisoned;
  found["scopes"] = run.scopes;
  return found;
}

template <class Element>
nb::list list_of(const std::vector<Element>& elements) {
  nb::list found;
  for (const Element& each : elements) found.append(dict_of(each));
  return found;
}

nb::typed<nb::dict, nb::str, nb::object> snapshot(EngineCore& core) {
  const Snapshot snapshot = core.engine().snapshot();
  nb::dict tasks;
  for (const Snapshot::Task& task : snapshot.tasks) tasks[nb::int_(task.number)] = dict_of(task);
  nb::dict queues;
  queues["singles"] = snapshot.singles;
  queues["groups"] = snapshot.groups;
  queues["early"] = snapshot.early;
  nb::dict found;
  found["conservative_edges"] = snapshot.conservative_edges;
  found["runs"] = list_of(snapshot.runs);
  found["tasks"] = tasks;
  found["queues"] = queues;
  found["children"] = list_of(snapshot.children);
  found["rings"] = list_of(snapshot.rings);
  return found;
}

using Proof = std::tuple<uint32_t, uint64_t, uint64_t, uint64_t, int64_t, int32_t>;

std::optional<Proof> deadlock(EngineCore& core, uint32_t run) {
  Deadlock proof;
  if (!core.engine().deadlock(&proof, run)) return std::nullopt;
  return Proof(proof.ring, proof.requested, proof.held, proof.size, proof.oldest_task,
               proof.open_scope);
}

using Out = Instructions;

// Bind the events that occur while tasks run.
void bind_reports(nb::class_<EngineCore>& core) {
  core.def("completion",
           [](EngineCore& core, int32_t child, uint64_t count, int outcome, int64_t cause) {
             return core.handle([&](Engine& e, Out& out) {
               e.completion(child, count, static_cast<Outcome>(outcome), cause, out);
             });
           })
      .def("child_ready",
           [](EngineCore& core, int32_t child) {
             return core.handle([&](Engine& e, Out& out) { e.child_ready(child, out); });
           })
      .def("child_lost",
           [](EngineCore& core, int32_t child, int64_t cause, uint64_t started, bool returns) {
             return core.handle(
                 [&](Engine& e, Out& out) { e.child_lost(child, cause, started, returns, out); });
           })
      .def("deadline",
           [](EngineCore& core, int32_t child, uint64_t count, int64_t cause) {
             return core.handle([&](Engine& e, Out& out) { e.deadline(child, count, cause, out); });
           })
      .def("cancel_task",
           [](EngineCore& core, int64_t task, int64_t cause) {
             return core.handle([&](Engine& e, Out& out) { e.cancel_task(task, cause, out); });
           })
      .def("delay",
           [](EngineCore& core, int64_t task, bool is_delayed) {
             return core.handle([&](Engine& e, Out& out) { e.delay(task, is_delayed, out); });
           })
      .def("withdraw",
           [](EngineCore& core, int32_t child, uint64_t count) {
             return core.handle([&](Engine& e, Out& out) { e.withdraw(child, count, out); });
           })
      .def("withdrawn",
           [](EngineCore& core, int32_t child, uint64_t count) {
             return core.handle([&](Engine& e, Out& out) { e.withdrawn(child, count, out); });
           })
      .def("cancel", [](EngineCore& core, int64_t cause, uint32_t run) {
        return core.handle([&](Engine& e, Out& out) { e.cancel(cause, out, run); });
      });
}

void bind_near_inputs(nb::module_& module) {
  nb::class_<NearInputs>(module, "NearInputs",
                         "The placement policy near_inputs of one Worker, whose driver reports the "
                         "tasks that it sends. The engine calls pick().")
      .def(nb::init<>())
      .def(
          "__call__",
          [](NearInputs& policy, const CandidateList& candidates, int32_t preferred) {
            return pick(policy, candidates, preferred, kNone);
          },
          nb::arg("candidates"), nb::arg("preferred"))
      .def("pick", &pick, nb::arg("candidates"), nb::arg("preferred"), nb::arg("task"))
      .def(
          "facts",
          [](NearInputs& policy, const std::vector<int32_t>& children, int64_t task) {
            NearInputs::Facts found = policy.facts(children, task);
            return std::tuple(std::move(found.callable), found.input_bytes,
                              std::move(found.held_bytes));
          },
          nb::arg("children"), nb::arg("task"),
          "Return the callable of a task, the bytes of its inputs, and how many of them each child "
          "has.");
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_near_inputs(module);
  nb::class_<EngineCore> core(module, "EngineCore");
  core.def(nb::init<const std::vector<std::pair<int, uint32_t>>&,
                    const std::array<std::pair<uint64_t, uint64_t>, kRings>&, bool, nb::object>(),
           nb::arg("children"), nb::arg("rings"), nb::arg("repeats_lost"), nb::arg("policy").none())
      .def("submit", &submit_task, nb::arg("kind"), nb::arg("members"), nb::arg("pins"),
           nb::arg("is_hint"), nb::arg("retries"), nb::arg("timeout_ms"), nb::arg("known").none(),
           nb::arg("after"), nb::arg("run"))
      .def("allocate", &allocate)
      .def("run_begin",
           [](EngineCore& core, int hazards) {
             return core.handle(
                 [&](Engine& e, Out& out) { e.run_begin(static_cast<Hazards>(hazards), out); });
           })
      .def("run_end",
           [](EngineCore& core, uint32_t run) {
             return core.handle([&](Engine& e, Out& out) { e.run_end(out, run); });
           })
      .def("give_up",
           [](EngineCore& core, uint32_t run) {
             return core.handle([&](Engine& e, Out&) { e.give_up(run); });
           })
      .def("scope_begin",
           [](EngineCore& core, uint32_t run) {
             return core.handle([&](Engine& e, Out&) { e.scope_begin(run); });
           })
      .def("scope_end",
           [](EngineCore& core, uint32_t run) {
             return core.handle([&](Engine& e, Out& out) { e.scope_end(out, run); });
           })
      .def("dispatch", [](EngineCore& core) {
        return core.handle([](Engine& e, Out& out) { e.dispatch(out); });
      });
  bind_reports(core);
  core.def("is_quiescent", [](EngineCore& core) { return core.engine().is_quiescent(); })
      .def(
          "failures",
          [](EngineCore& core, uint32_t run) -> NumberPairs { return core.engine().failures(run); })
      .def("poisonings",
           [](EngineCore& core, uint32_t run) -> NumberPairs {
             return core.engine().poisonings(run);
           })
      .def("deadlock", &deadlock)
      .def("snapshot", &snapshot)
      .def("validate", [](EngineCore& core) { guarded([&] { core.engine().validate(); }); });
}

}  // namespace pto::worker
