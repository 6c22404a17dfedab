#include "publisher.hpp"

namespace pto::ring_buffer {

bool Publisher::add_dep(int64_t from, int64_t to, Place at) {
  if (!check_dep(from, to, at)) return false;
  const TaskId producer = TaskId::of(from);
  // A retired task has also completed, so no edge is needed.
  if (producer.number < run_.space.ring(producer.ring).alive) return true;
  const SlotRef slot = run_.rings.slot_of_task(from);
  run_.statistics.edges.explicit_ += current_.edges().add(slot, kOrders) != 0;
  return true;
}

bool Publisher::check_dep(int64_t from, int64_t to, Place at) {
  const ErrorFacts facts{PTO_ERROR_USAGE, to, from};
  const TaskId producer = TaskId::of(from);
  if (held_.count == 0 || to != last_id_) {
    run_.context.fail_at(
        at.file, at.line, facts, "add_dep from ", TaskName{from}, " to ", TaskName{to},
        ": the second task is not the one submitted last, or another call followed its submit; "
        "add the dependencies of a task right after its submit");
    return false;
  }
  if (from >= 0 && from != to && producer.number < run_.rings.ring[producer.ring].next) {
    return true;
  }
  run_.context.fail_at(at.file, at.line, facts, "add_dep to ", TaskName{to}, " from ",
                       TaskName{from},
                       from == to ? ", which is the same task; name another task"
                                  : ", which does not exist; use an id that a submit returned");
  return false;
}

}  // namespace pto::ring_buffer
