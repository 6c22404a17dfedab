// The driver of a Worker: one engine, a link to each child, and whoever drives them.
//
// The Scheduler is a role, `role_`: whoever submits or waits holds it for the time of a call, and a
// thread of the driver's own takes it when nobody has for a while, see background.hpp. All
// that is not said to be atomic is the role's. Order of locks: nobody waits for the role, or for a
// bell, while holding what Host::give_up() gives up; where the engine or an end is Python, what
// Host::take() takes is held before the role is taken.
//
// Invariants: a task has a record from its submit until TaskFinished; a frame that the engine has
// sent is in its child's link, in the engine's order; what an answer says is told to the engine
// before anything later is sent.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "board.hpp"
#include "callable/callable_handle.hpp"
#include "driver/background.hpp"
#include "driver/captured_graph.hpp"
#include "driver/child_link.hpp"
#include "driver/host.hpp"
#include "driver/outcomes.hpp"
#include "driver/records.hpp"
#include "driver/regions.hpp"
#include "driver/watches.hpp"
#include "engine/interface.hpp"
#include "pto/abi/arguments.h"

namespace pto::hierarchy {

struct DriverConfiguration {
  Configuration engine;
  void* board = nullptr;  // made by Board::create for as many children
  uint64_t snapshot_limit_bytes = uint64_t{1} << 30;
  uint64_t patience_ns = 2'000'000'000;  // for what runs when a run is interrupted
  bool is_engine_python = false;
};

struct MemberCall {
  std::span<const pto_tensor> tensors;
  std::span<Tensor> keys;  // of the tensors; the engine writes the addresses that it allocates
  std::span<const uint64_t> scalars;
};

struct Call {
  Kind kind = Kind::kNextLevel;
  bool has_arguments = true;
  bool is_hint = false;
  int32_t retries = 0;
  uint32_t callable = 0;
  uint32_t config = 0;
  uint32_t timeout_ms = 0;
  Place place;
  std::span<const MemberCall> members;
  std::span<const int32_t> pins;
  std::span<const int64_t> after;  // earlier tasks of the run that it also waits for
};

// `members` keeps what the submission refers to.
Submission submission_of(const Call& call, std::vector<Member>& members);

struct DriverStatistics {
  int64_t submitted = 0;  // of the run
  int64_t finished = 0;
  int64_t failed = 0;
  int64_t poisoned = 0;
  uint64_t waiting = 0;  // have a record and are not at a child
  uint64_t in_flight = 0;
  uint64_t saved_bytes = 0;
  uint64_t most_saved_bytes = 0;
};

// A submit that can never succeed.
struct DeadlockFound {
  Deadlock proof;
};

// Tasks of one thread, in whose numbers others may lie that another thread has submitted meanwhile.
struct TaskRange {
  int64_t first = kNone;
  int64_t last = kNone;

  void add(int64_t task) {
    if (first == kNone) first = task;
    last = task;
  }
};

class Driver : private FrameSource {
 public:
  Driver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host);
  ~Driver() override;

  // ---- the program: each on a thread that holds what Host::give_up() gives up ----

  void run_begin(Hazards hazards);
  // Waits for all tasks. Refuses, and the run goes on, where a scope is open; those of a cancelled
  // run are ended here. What Host::look() throws cancels, waits `patience_ns` for what runs, ends
  // the children of what then still does, and is thrown on. `is_interrupted`: something has been
  // thrown before, so the same is done at once.
  void run_end(bool is_interrupted = false);
  // The last run; from run_begin() on, the one that has begun.
  const std::shared_ptr<RunOutcomes>& outcomes() const { return outcomes_; }

  // The number of the task. Throws Refusal, DeadlockFound, or what Host::look() throws while it
  // waits for room; then nothing has changed.
  int64_t submit(const Call& call);
  // `count` tasks; `prepare(i)` makes `call` that of task i. `made` follows: where it throws, those
  // before have been submitted.
  void submit_each(const Call& call, int64_t count, const std::function<void(int64_t)>& prepare,
                   TaskRange& made);
  // Throws where a submit of this never could be, whatever has been submitted before.
  void check(const Call& call) const;
  // Makes all submits of a graph, whose bases say where its arguments lie. `is_known`: they lie
  // apart, so that the edges are those of the capture. Throws as submit() does, in the middle.
  void replay(std::shared_ptr<CapturedGraph> graph, bool is_known);
  int64_t allocate(uint64_t bytes, uint64_t* address);
  void scope_begin();
  void scope_end();

  void cancel(int64_t cause);
  // Whether the task has ended, within `timeout_ns`.
  bool wait(int64_t task, uint64_t timeout_ns);
  bool has_ended(int64_t task);
  // For event loops, which first get the descriptor. Return true where the task has ended. Else
  // watch its end: take_watched() then returns the task, and the descriptor is readable. Throw as a
  // wait does.
  bool watch(int64_t task);
  std::vector<int64_t> take_watched();
  int watch_descriptor();
  void stop_watching();  // closes the descriptor

  // The same digest gives the same number.
  uint32_t add_callable(const Digest& digest, const std::string& name);
  // A configuration, from number 1 on: whether `number` was the next one still. `frame` gives the
  // data of the control frame that brings it to a child.
  uint32_t next_config();
  bool add_config(uint32_t number, std::string frame);
  int64_t add_cause(std::string data);
  // Of the last run, or of the one with those outcomes.
  std::optional<Cause> cause(int64_t number, const RunOutcomes* of = nullptr);
  // Gives a cause of this run that has no data some: a deadline.
  void explain(int64_t cause, std::string data);

  // ---- the children ----

  // Takes the end. Before the child is ready; again after it was lost.
  void attach(int32_t child, const pto_transport_api* api, pto_parent_end* end,
              uint32_t largest_frame_bytes, bool is_python);
  void detach_all();
  void child_ready(int32_t child);
  // Its process is gone. Takes what it still answered first.
  void child_lost(int32_t child, int64_t cause, bool returns);
  // The number of its reply.
  uint64_t control(int32_t child, std::string data);
  enum class ReplyState { kPending, kGiven, kLost };
  // Gives each reply once; kPending after `timeout_ns`.
  ReplyState reply(uint64_t number, uint64_t timeout_ns, std::string* data);

  // ---- looking ----

  // What the task was: live, or of the last run, or of that with those outcomes, and not completed.
  std::optional<EndedTask> describe(int64_t task, int32_t* child, const RunOutcomes* of = nullptr);
  const std::string& callable_name(uint32_t callable) const;
  DriverStatistics statistics();
  // Of the last run, once it is over: (task, cause), the first failure first; (task, root).
  std::vector<std::pair<int64_t, int64_t>> failures();
  std::vector<std::pair<int64_t, int64_t>> poisonings();
  // How a task of that run ended, where it did not complete.
  std::optional<EndedTask> failure_of(const RunOutcomes& outcomes, int64_t task);
  // Everything before it has ended; grows. What tasks named until then is not used any more.
  int64_t oldest_live_task() const { return oldest_live_.load(std::memory_order_relaxed); }
  uint32_t scope_depth() const { return scope_depth_; }
  bool is_running() const { return is_running_; }
  // Whether the engine, a policy or a transport is Python.
  bool calls_python() const { return needs_python_; }
  const Configuration& engine_configuration() const { return configuration_.engine; }

  // Throws Refusal where this thread has the role: it is in a call of the driver.
  void refuse_inside() const;
  // Around a fork: the driver's own thread stands at a safe point between the two.
  void park() {
    refuse_inside();  // its own thread may wait for the role
    background_.park();
  }
  void unpark() { background_.unpark(); }
  // Ends a run that is open: what was in flight is lost for this cause, and nothing starts any
  // more. Who waits comes back: with the end of its task, or with Refusal (closed), which each
  // later submit and wait gets, too. When this returns nobody uses the board.
  void stop(int64_t cause);
  // Throws Refusal (closed) after stop().
  void check_open() const;
  // After stop(), or without it where no other thread uses the driver.
  void close();
  // Whether this is the driver's own thread, in a call of the host; and how the driver is deleted
  // there, see Background::end_by_itself().
  bool is_own_thread() const { return background_.is_own_thread(); }
  void end_by_itself(std::function<void()> rest) { background_.end_by_itself(std::move(rest)); }

 private:
  friend class Background;
  class Role;
  class Waiting;

  struct Callable {
    Digest digest;
    std::string name;
  };
  struct Reply {
    ReplyState state = ReplyState::kPending;
    std::string data;
  };
  struct Action {
    int32_t child;
    int64_t cause;  // kNone: broken
    uint64_t connection;
    std::string words;
  };

  pto_frame_view view_of(const Frame& frame, pto_frame* head) const override;
  static EndedTask ended_from(const TaskRecord& record);

  // with the role
  void lose(int32_t child, int64_t cause, bool returns);
  void lose_all(int64_t cause);
  uint64_t last_started(int32_t child) const;
  void note_returning(ChildLink* link, bool returns);
  void end_scopes();
  void forget_causes();
  void wake_waiting();

  // pump.cpp, with the role
  // `waiters`: how many of the waiting threads this call is made for.
  bool pump(uint32_t waiters = 0);
  bool poll_children();
  bool read_board(int32_t child);
  void take_answers(int32_t child, const pto_answer* answers, int32_t count);
  void take_completion(int32_t child, const pto_answer& answer);
  void take_reply(int32_t child, const pto_answer& answer);
  void tell_completion(int32_t child, uint64_t count, Outcome outcome, int64_t cause);
  void skip_consumers(int32_t child, uint64_t count);
  void flush_children();
  void process();
  void wake_first_child();
  void send(const Instruction& instruction);
  void finish(const Instruction& instruction);
  void stop_clocks();
  void note_broken(int32_t child, const std::string& words);
  void disbelieve(int32_t child, const std::string& words);
  void look_for_deadlines();

  // waiting.cpp, without the role
  template <class Done>
  bool wait_until(Done done, uint64_t deadline_ns);
  template <class Call>
  bool guarded(Call call, std::exception_ptr& error) noexcept;
  void run_actions();
  // With nothing of the host: who waits for that may hold the role.
  void keep_failure(std::exception_ptr error);
  void look_around(bool is_callers);
  void note_if_look_due();
  void look_around_if_due();
  uint64_t slice_ns(uint64_t deadline_ns, uint64_t* longest_ns) const;
  uint64_t longest_slice_ns() const;
  bool wait_for_run(uint64_t timeout_ns);
  void end_interrupted();

  // submit.cpp, with the role but for the first two
  template <class Attempt>
  void attempt_or_wait(Attempt attempt);
  void ensure_granted(uint64_t bytes);
  int64_t try_submit(const Call& call, uint32_t submits_a_pump);
  bool is_stuck(Deadlock* proof) const;
  void keep(const Call& call, int64_t task);
  void after_submit(int64_t task);
  bool is_pump_due(Kind kind, uint32_t submits);
  void note_allocated(uint64_t address, uint64_t bytes);
  uint64_t find_regions(const Call& call, std::vector<SavedRange>* ranges) const;
  void check_sizes(const Call& call) const;
  bool is_granted(uint64_t bytes) const;
  int64_t try_allocate(uint64_t bytes, uint64_t* address);

  // replay.cpp, with the role
  bool is_granted(const CapturedGraph& graph, const CapturedStep& step) const;
  bool try_step(CapturedGraph& graph, const CapturedStep& step, bool is_known);
  bool try_allocate(CapturedGraph& graph, const CapturedStep& step);
  bool try_resubmit(CapturedGraph& graph, const CapturedTask& task, bool is_known);
  std::span<const int64_t> explicit_producers(std::span<const Known::Producer> producers);
  void fill_keys(const CapturedGraph& graph, const CapturedTask& task);
  void fill_members(const CapturedGraph& graph, const CapturedTask& task, bool has_keys);
  uint64_t ranges_of(const CapturedTask& task, std::vector<SavedRange>* ranges) const;
  void keep(CapturedGraph& graph, const CapturedTask& task, int64_t number);
  void after_resubmit(int64_t task);

  const DriverConfiguration configuration_;
  const std::unique_ptr<Engine> engine_;
  Host& host_;
  Board board_;
  std::mutex role_;
  std::atomic<std::thread::id> role_holder_{};  // while a Role is held

  std::vector<std::unique_ptr<ChildLink>> links_;
  Records records_;
  SavedRegions regions_;
  Watches watches_;
  std::deque<Callable> callables_;
  std::unordered_map<std::string, uint32_t> callable_numbers_;
  std::vector<std::shared_ptr<const std::string>> configs_;
  std::shared_ptr<RunOutcomes> outcomes_;
  std::unordered_map<int64_t, Cause> causes_;    // of the host, for as long as the driver is
  std::unordered_map<uint64_t, Reply> replies_;  // those that somebody will ask for
  std::vector<Action> actions_;
  std::exception_ptr
      failure_;  // of the driver's own thread; the next wait of the program throws it

  Instructions out_;
  std::vector<Member> members_;              // of the submit under way
  std::vector<Tensor> keys_;                 // of the task of a replay under way
  std::vector<int64_t> after_;               // of the same
  std::shared_ptr<CapturedGraph> replayed_;  // of the run: records of its tasks point at the blobs
  uint64_t granted_[kRings] = {};
  uint64_t high_water_[kRings] = {};
  DriverStatistics counts_;
  int64_t newest_ = kNone;
  int64_t next_cause_ = 0;
  int64_t first_cause_ = 0;  // of those given since the last run began
  uint64_t next_control_ = 1;
  int32_t first_child_ = static_cast<int32_t>(kNone);  // that got the first task of the last run
  bool has_sent_ = false;                              // a task, in this run
  uint32_t scope_depth_ = 0;
  uint32_t since_pump_ = 0;
  uint32_t since_clock_ = 0;   // submits
  bool is_dirty_ = false;      // the engine may have something to send
  bool is_cancelled_ = false;  // the run

  std::atomic<bool> is_running_{false};
  std::atomic<bool> is_closed_{false};
  std::atomic<bool> needs_python_;      // the engine does, or an end did
  std::atomic<uint32_t> timeouts_{0};   // live tasks that have one
  std::atomic<uint32_t> returning_{0};  // children that are lost and come back
  std::atomic<int64_t> oldest_live_{0};
  std::atomic<uint64_t> drives_{0};   // how often the program has taken the role
  std::atomic<uint32_t> waiting_{0};  // threads of the program that wait
  std::atomic<bool> has_work_{false};
  std::atomic<uint64_t> last_look_ns_{0};
  std::atomic<bool> is_look_due_{false};

  Background background_;  // the last: its thread uses all of the above
};

}  // namespace pto::hierarchy
