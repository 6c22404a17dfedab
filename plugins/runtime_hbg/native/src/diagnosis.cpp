#include "diagnosis.hpp"

namespace pto::build_graph {
namespace {

// The maximum number of task ids in a message.
constexpr int64_t kListedTasks = 12;

// A depth-first search for a cycle. It needs no additional memory, because it uses three fields of
// the tasks that have not completed: next_ready is the task from which the search came; end_time
// contains the mark and the number of successors already followed; start_time is the block of the
// last successor.
class CycleSearch {
 public:
  explicit CycleSearch(const Graph& graph) : graph_(graph) {}

  // Returns a task on a cycle, or kNoTask. start_time then links the tasks of the cycle in the
  // order of their edges.
  int32_t find() {
    const int64_t count = graph_.task_count();
    for (int64_t root = 0; root < count; ++root) {
      if (is_searched(static_cast<int32_t>(root))) continue;
      const int32_t found = search_from(static_cast<int32_t>(root));
      if (found != kNoTask) return found;
    }
    return kNoTask;
  }

  int32_t following(int32_t task) const {
    return static_cast<int32_t>(graph_.record(task).start_time);
  }

  ~CycleSearch() {
    const int64_t count = graph_.task_count();
    for (int64_t id = 0; id < count; ++id) {
      BuiltTask& record = graph_.record(id);
      if (!is_completed(record.fanout.load(std::memory_order_relaxed))) {
        record.start_time = record.end_time = 0;
      }
    }
  }

 private:
  enum : uint64_t { kUnseen = 0, kOnPath = 1, kLeft = 2, kMark = 3, kOneFollowed = 4 };

  bool is_searched(int32_t task) const {
    const BuiltTask& record = graph_.record(task);
    return is_completed(record.fanout.load(std::memory_order_relaxed)) ||
           (record.end_time & kMark) != kUnseen;
  }

  int32_t search_from(int32_t root) {
    enter(root, kNoTask);
    for (int32_t task = root; task != kNoTask;) {
      const int32_t successor = next_successor(graph_.record(task));
      if (successor == kNoTask) {
        BuiltTask& record = graph_.record(task);
        record.end_time = kLeft;
        task = record.next_ready;
      } else if ((graph_.record(successor).end_time & kMark) == kOnPath) {
        link_cycle(successor, task);
        return successor;
      } else if (!is_searched(successor)) {
        enter(successor, task);
        task = successor;
      }
    }
    return kNoTask;
  }

  void enter(int32_t task, int32_t from) {
    BuiltTask& record = graph_.record(task);
    record.end_time = kOnPath;
    record.next_ready = from;
  }

  int32_t next_successor(BuiltTask& record) const {
    const uint32_t index = static_cast<uint32_t>(record.end_time / kOneFollowed);
    if (index == successor_count(record.fanout.load(std::memory_order_relaxed))) return kNoTask;
    record.end_time += kOneFollowed;
    if (index < kInlineSuccessors) return record.successors[index];
    const uint32_t place = (index - kInlineSuccessors) % kBlockSuccessors;
    if (place == 0) {
      const bool is_first = index == kInlineSuccessors;
      record.start_time = is_first ? record.first_block
                                   : graph_.block(static_cast<uint32_t>(record.start_time)).next;
    }
    return graph_.block(static_cast<uint32_t>(record.start_time)).successors[place];
  }

  // Links the cycle: the path of the search leads from `first` to `last`, and an edge leads from
  // `last` to `first`.
  void link_cycle(int32_t first, int32_t last) {
    int32_t following = first;
    for (int32_t task = last;; task = graph_.record(task).next_ready) {
      graph_.record(task).start_time = static_cast<uint64_t>(following);
      following = task;
      if (task == first) return;
    }
  }

  const Graph& graph_;
};

// Writes "task 7 (function 2) waits for 1 of 3 predecessors" for the first few waiting tasks.
void add_waiting(const Graph& graph, Text& text) {
  const int64_t count = graph.task_count();
  int64_t listed = 0;
  for (int64_t id = 0; id < count && listed < 3; ++id) {
    const BuiltTask& record = graph.record(id);
    const int32_t waits = record.fanin.load(std::memory_order_relaxed);
    if (waits <= 0 || is_completed(record.fanout.load(std::memory_order_relaxed))) continue;
    text.add(listed++ == 0 ? "; " : ", ", "task ", id, " (function ", record.payload->func_id,
             ") waits for ", waits, " of ", record.fanin_count, " predecessors");
  }
}

}  // namespace

bool latch_cycle(Context& context, const Graph& graph) {
  CycleSearch search(graph);
  const int32_t first = search.find();
  if (first == kNoTask) return false;
  char path[256];
  Text text(path, sizeof path);
  text.add(first);
  int64_t length = 0;
  int32_t task = first;
  do {
    task = search.following(task);
    if (length < kListedTasks) text.add(" -> ", task);
    ++length;
  } while (task != first);
  if (length > kListedTasks) text.add(" -> ... -> ", first);
  context.fail({PTO_ERROR_CYCLE, first, search.following(first),
                graph.record(first).payload->func_id, static_cast<uint64_t>(length)},
               "the task graph has a cycle of ", length, " tasks: ", static_cast<const char*>(path),
               "; remove one of these edges");
  return true;
}

void latch_unpublished(Context& context, const Graph& graph) {
  const int64_t count = graph.task_count();
  const int64_t missing = count - graph.published();
  char ids[256];
  Text text(ids, sizeof ids);
  int64_t first = kNoTask;
  int64_t listed = 0;
  for (int64_t id = 0; id < count && listed < kListedTasks; ++id) {
    if (graph.record(id).published) continue;
    if (listed++ == 0) first = id;
    text.add(listed > 1 ? ", " : "", id);
  }
  if (missing > listed) text.add(", ...");
  context.fail({PTO_ERROR_UNPUBLISHED, first, -1, -1, static_cast<uint64_t>(missing)}, missing,
               " of ", count, " tasks were never published (", static_cast<const char*>(ids),
               "); call publish_task for each task after you have added its edges");
}

size_t explain(const Graph& graph, const Scheduler& scheduler, const char* variant_name, char* out,
               size_t capacity) {
  Text text(out, capacity);
  const int64_t tasks = graph.task_count();
  const Progress progress = scheduler.progress();
  text.add(variant_name, ": ", tasks, " tasks, ", progress.completed, " completed, ",
           progress.dispatched - progress.completed, " on cores, ", tasks - progress.dispatched,
           " waiting");
  if (scheduler.is_build_done()) {
    add_waiting(graph, text);
  } else {
    text.add("; the orchestration has not ended");
  }
  return text.add(".").length();
}

}  // namespace pto::build_graph
