#include "driver/child_memory.hpp"

#include <algorithm>

#include "driver/worker_driver.hpp"
#include "errors.hpp"

namespace pto::worker {
namespace {

std::string text_of(const TaskArgs& args, uint32_t index, const std::string& member) {
  return "tensor " + std::to_string(index) + member + " (" +
         std::to_string(args.notes[index].tensor->bytes) + " bytes at " +
         hex(args.tensors()[index].data) + ")";
}

bool contains(std::span<const int32_t> children, int32_t child) {
  return std::find(children.begin(), children.end(), child) != children.end();
}

// Choose a child for each member that has no pin. Use the child that the program suggests if no
// other member needs that child, otherwise the first free child.
void fill_pins(std::span<const int32_t> candidates, std::span<const int32_t> wishes,
               std::vector<int32_t>& pins) {
  for (size_t member = 0; member < pins.size(); ++member) {
    if (pins[member] != kNone) continue;
    const bool has_wish = member < wishes.size() && !contains(pins, wishes[member]);
    const auto free = std::find_if(candidates.begin(), candidates.end(),
                                   [&](int32_t child) { return !contains(pins, child); });
    if (has_wish)
      pins[member] = wishes[member];
    else if (free != candidates.end())
      pins[member] = *free;
  }
}

}  // namespace

std::string ChildMemory::names_of(const std::vector<int32_t>& children) const {
  std::string text = noun() + (children.size() > 1 ? "s " : " ");
  for (size_t i = 0; i < children.size(); ++i) {
    if (i > 0) text += i + 1 < children.size() ? ", " : " and ";
    text += std::to_string(children[i]);
  }
  return text;
}

void ChildMemory::check_distinct(const std::vector<int32_t>& pins) const {
  for (size_t member = 0; member < pins.size(); ++member) {
    const auto first = std::find(pins.begin(), pins.end(), pins[member]) - pins.begin();
    if (pins[member] == kNone || first == static_cast<ptrdiff_t>(member)) continue;
    core::raise_usage("members " + std::to_string(first) + " and " + std::to_string(member) +
                      " both use memory of " + names_of({pins[member]}) +
                      ", but the members of a group run on different children; submit two tasks");
  }
}

void ChildMemory::refuse_sub(std::span<TaskArgs* const> args) const {
  for (const TaskArgs* each : args) {
    for (uint32_t i = 0; i < each->tensor_count; ++i) {
      if (!each->tensors()[i].child_memory) continue;
      core::raise_usage(
          text_of(*each, i, "") +
          (is_of_chips_
               ? " is in the memory of a chip, which SUB children cannot access; submit a "
                 "chip's task, or copy the memory with Worker.copy_from"
               : " is in the memory of a child, which SUB children cannot access; submit a "
                 "task of that child, or copy the memory with "
                 "Worker.remote_copy_from"));
    }
  }
}

void ChildMemory::add(int32_t child, uint64_t address, uint64_t bytes) {
  allocations_[child][address] = {address + bytes, {}};
}

void ChildMemory::remove(int32_t child, uint64_t address) {
  const auto found = allocations_.find(child);
  if (found != allocations_.end()) found->second.erase(address);
}

const ChildMemory::Allocation* ChildMemory::find(int32_t child, uint64_t address,
                                                 uint64_t bytes) const {
  const auto of_child = allocations_.find(child);
  if (of_child == allocations_.end()) return nullptr;
  auto found = of_child->second.upper_bound(address);
  if (found == of_child->second.begin()) return nullptr;
  const Allocation& allocation = (--found)->second;
  const bool fits =
      address < allocation.end && std::max<uint64_t>(bytes, 1) <= allocation.end - address;
  return fits ? &allocation : nullptr;
}

bool ChildMemory::holds(int32_t child, uint64_t address, uint64_t bytes) const {
  return find(child, address, bytes) != nullptr;
}

std::vector<int32_t> ChildMemory::holders(const pto_tensor& tensor, uint64_t bytes) const {
  std::vector<int32_t> found;
  for (const auto& [child, allocations] : allocations_)
    if (holds(child, tensor.data, bytes)) found.push_back(child);
  return found;
}

void ChildMemory::place(SubmitCall& call, std::span<const int32_t> candidates) const {
  const std::span<TaskArgs* const> args = call.all_args;
  Submission& submission = call.submission;
  if (call.kind() == Kind::kSub) refuse_sub(args);
  const bool is_pinned = !call.pins.empty() && !submission.is_hint;
  if (is_pinned && call.pins.size() != args.size()) return;  // the engine refuses this submit
  std::vector<int32_t> found;
  TensorAccess* tensor = call.tensors.data();
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string member = call.is_group ? " of member " + std::to_string(i) : "";
    const int32_t pin = is_pinned ? call.pins[i] : static_cast<int32_t>(kNone);
    found.push_back(child_of(*args[i], pin, member, submission.is_hint));
    for (const pto_tensor& argument : args[i]->tensors()) {
      if (argument.child_memory) tensor->child = found.back();
      ++tensor;
    }
  }
  if (is_pinned) return;
  check_distinct(found);
  fill_pins(candidates, call.pins, found);
  call.pins.assign(found);
  submission.pins = call.pins;
  submission.is_hint = false;
}

// Return the child whose memory the arguments use, or kNone.
int32_t ChildMemory::child_of(const TaskArgs& args, int32_t pin, const std::string& member,
                              bool is_hint) const {
  std::vector<int32_t> children;
  uint32_t first = args.tensor_count;  // index of the first tensor in child memory
  for (uint32_t i = 0; i < args.tensor_count; ++i) {
    if (!args.tensors()[i].child_memory) continue;
    const std::vector<int32_t> found = holders(args.tensors()[i], args.notes[i].tensor->bytes);
    check_holders(args, i, found, pin, member);
    if (first == args.tensor_count) {
      first = i;
      children = found;
      continue;
    }
    const std::vector<int32_t> before = children;
    std::erase_if(children, [&](int32_t child) { return !contains(found, child); });
    if (!children.empty()) continue;
    core::raise_usage(text_of(args, first, member) + " is in the memory of " + names_of(before) +
                      ", and " + text_of(args, i, member) + " is in the memory of " +
                      names_of(found) + "; a task can use the memory of only one " + noun() +
                      ": copy one of the tensors so that both are on the same " + noun());
  }
  if (children.empty()) return static_cast<int32_t>(kNone);
  if (pin != kNone) return pin;
  if (children.size() == 1) return children[0];
  core::raise_usage(text_of(args, first, member) + " is in the memory of " + names_of(children) +
                    " at the same address; name the " + noun() + " with " +
                    (member.empty() ? "worker=" : "workers=") +
                    (is_hint ? " and without hint=" : ""));
}

void ChildMemory::check_holders(const TaskArgs& args, uint32_t index,
                                const std::vector<int32_t>& found, int32_t pin,
                                const std::string& member) const {
  if (found.empty()) {
    core::raise_usage(
        text_of(args, index, member) + " is not in allocated memory of a " + noun() +
        " of this Worker; pass " +
        (is_of_chips_ ? "an address from Worker.malloc that has not been freed, and whose chip "
                        "has not been lost"
                      : "a buffer of Worker.remote_malloc that has not been freed, and whose "
                        "child has not been lost"));
  }
  if (pin == kNone || contains(found, pin)) return;
  core::raise_usage(text_of(args, index, member) + " is in the memory of " + names_of(found) +
                    (member.empty() ? ", but worker= names " : ", but workers= names ") +
                    names_of({pin}) + "; name the " + noun() + " that has the memory");
}

void ChildMemory::add_uses(std::span<const TensorAccess> tensors, const TaskRange& tasks,
                           int64_t oldest_live) {
  for (const TensorAccess& tensor : tensors)
    if (tensor.child != kNone) add_use(tensor.child, tensor.address, tasks, oldest_live);
}

void ChildMemory::add_use(int32_t child, uint64_t address, const TaskRange& tasks,
                          int64_t oldest_live) {
  auto* allocation = const_cast<Allocation*>(find(child, address, 1));
  if (!allocation) return;  // the child may have been lost while the submit waited
  std::vector<TaskRange>& uses = allocation->uses;
  if (uses.size() >= allocation->prune_at) {
    std::erase_if(uses, [&](const TaskRange& each) { return each.last < oldest_live; });
    allocation->prune_at = std::max<size_t>(64, 2 * uses.size());
  }
  uses.push_back(tasks);
}

int64_t ChildMemory::user(int32_t child, uint64_t address, Driver& driver) const {
  const Allocation* allocation = find(child, address, 1);
  if (!allocation || driver.flags().open_runs == 0) return kNone;
  // Iterate over a copy, because other threads may change the list while has_ended() waits.
  for (const TaskRange& each : std::vector<TaskRange>(allocation->uses)) {
    if (each.last == kUntilRunEnds) {
      if (driver.ask()->core.book.outcomes()->first_task == each.first) return each.first;
      continue;
    }
    for (int64_t task = std::max(each.first, driver.flags().oldest_live.load()); task <= each.last;
         ++task)
      if (!driver.ask()->core.book.has_ended(task)) return task;
  }
  return kNone;
}

}  // namespace pto::worker
