#include "driver/driver.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "driver/waiting.hpp"

namespace pto::hierarchy {

Driver::Driver(const DriverConfiguration& configuration, std::unique_ptr<Engine> engine, Host& host)
    : configuration_(configuration),
      engine_(std::move(engine)),
      host_(host),
      board_(configuration.board),
      regions_(configuration.snapshot_limit_bytes),
      outcomes_(std::make_shared<RunOutcomes>()),
      needs_python_(configuration.is_engine_python),
      background_(*this) {
  for (const ChildConfiguration& child : configuration_.engine.children)
    links_.push_back(std::make_unique<ChildLink>(child));
  outcomes_->is_over = true;
}

Driver::~Driver() = default;

void Driver::check_open() const {
  if (is_closed_) throw Refusal(Refusal::Kind::kClosed, "this Worker was closed; make another one");
}

// A transport, an engine or a policy in Python was called with the role; that, or the handler of a
// signal that arrived there, asks for more.
void Driver::refuse_inside() const {
  if (role_holder_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
  throw Refusal(Refusal::Kind::kUsage,
                "the Worker is used inside a call of it, perhaps by the handler of a signal; let "
                "the handler only note the signal, or raise");
}

void Driver::stop(int64_t cause) {
  {
    Role role(*this);
    if (is_closed_) return;
    lose_all(cause);
    is_closed_ = true;
  }
  engine::ring(board_.parent_bell());
  while (waiting_.load() > Waiting::by_this_thread(*this)) {
    host_.give_up();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    host_.take();
  }
  background_.stop();
}

void Driver::lose_all(int64_t cause) {
  if (is_running_) {
    outcomes_->is_stopped = true;
    engine_->cancel(cause, out_);
    process();
  }
  for (size_t i = 0; i < links_.size(); ++i)
    if (!links_[i]->is_lost) lose(static_cast<int32_t>(i), cause, false);
  is_running_ = false;
  outcomes_->is_over = true;
  has_work_ = false;
  watches_.end_all();
}

void Driver::close() {
  if (!is_own_thread()) refuse_inside();  // its own thread may wait for the role
  background_.stop();
  // Frames of its own thread may hold the role: the connections go with the driver then.
  if (!is_own_thread()) detach_all();
}

void Driver::run_begin(Hazards hazards) {
  std::exception_ptr stale;  // nobody waited; let go of without the role
  {
    Role role(*this);
    check_open();
    wake_first_child();
    engine_->run_begin(hazards, out_);
    stale = std::exchange(failure_, nullptr);
    forget_causes();
    outcomes_ = std::make_shared<RunOutcomes>();
    outcomes_->first_task = newest_ + 1;
    counts_ = {};
    for (uint64_t& bytes : high_water_) bytes = 0;
    scope_depth_ = 0;
    is_cancelled_ = false;
    is_running_ = true;
    process();
  }
  background_.start();
}

// Those of runs before the last, but for what children are gone for: outcomes have their own. One
// that was given a moment ago is about to be used.
void Driver::forget_causes() {
  std::erase_if(causes_, [this](const auto& each) {
    const auto is_its = [&](const auto& link) { return link->loss_cause == each.first; };
    return each.first < first_cause_ && std::none_of(links_.begin(), links_.end(), is_its);
  });
  first_cause_ = next_cause_;
}

void Driver::scope_begin() {
  Role role(*this);
  check_open();
  engine_->scope_begin();
  scope_depth_ += 1;
}

void Driver::scope_end() {
  Role role(*this);
  check_open();
  engine_->scope_end(out_);
  scope_depth_ -= 1;
  process();
  wake_waiting();
}

// Those that the program has left open.
void Driver::end_scopes() {
  while (scope_depth_ > 0) {
    engine_->scope_end(out_);
    scope_depth_ -= 1;
    process();
  }
}

void Driver::cancel(int64_t cause) {
  Role role(*this);
  if (is_closed_) return;
  is_cancelled_ = true;
  engine_->cancel(cause, out_);
  is_dirty_ = true;
  process();
  flush_children();
  wake_waiting();
}

// After what others may wait for, such as room.
void Driver::wake_waiting() {
  if (waiting_.load(std::memory_order_relaxed) > 0) engine::ring(board_.parent_bell());
}

bool Driver::has_ended(int64_t task) {
  Role role(*this, Role::kAsks);
  return records_.find(task) == nullptr;
}

uint32_t Driver::add_callable(const Digest& digest, const std::string& name) {
  Role role(*this, Role::kAsks);
  const std::string key(reinterpret_cast<const char*>(digest.data()), digest.size());
  const auto [found, is_new] =
      callable_numbers_.try_emplace(key, static_cast<uint32_t>(callables_.size()));
  if (is_new) callables_.push_back({digest, name});
  return found->second;
}

uint32_t Driver::next_config() {
  Role role(*this, Role::kAsks);
  return static_cast<uint32_t>(configs_.size() + 1);
}

bool Driver::add_config(uint32_t number, std::string frame) {
  Role role(*this, Role::kAsks);
  if (number != configs_.size() + 1) return false;
  configs_.push_back(std::make_shared<const std::string>(std::move(frame)));
  return true;
}

int64_t Driver::add_cause(std::string data) {
  Role role(*this, Role::kAsks);
  const int64_t number = next_cause_++;
  causes_[number].data = std::move(data);
  return number;
}

std::optional<Cause> Driver::cause(int64_t number, const RunOutcomes* of) {
  Role role(*this, Role::kAsks);
  if (const Cause* found = (of ? of : outcomes_.get())->cause(number)) return *found;
  const auto found = causes_.find(number);
  return found == causes_.end() ? std::nullopt : std::optional<Cause>(found->second);
}

void Driver::explain(int64_t cause, std::string data) {
  Role role(*this, Role::kAsks);
  const auto found = outcomes_->causes.find(cause);
  if (found != outcomes_->causes.end()) found->second.data = std::move(data);
}

std::optional<EndedTask> Driver::describe(int64_t task, int32_t* child, const RunOutcomes* of) {
  Role role(*this, Role::kAsks);
  *child = static_cast<int32_t>(kNone);
  const RunOutcomes& run = of ? *of : *outcomes_;
  const auto ended = run.ended.find(task);
  if (ended != run.ended.end()) {
    if (const Cause* why = run.cause(ended->second.cause)) *child = why->child;
    return ended->second;
  }
  const TaskRecord* record = records_.find(task);
  if (!record) return std::nullopt;
  for (size_t i = 0; i < links_.size(); ++i) {
    const ChildLink& link = *links_[i];
    for (uint64_t count = link.completed() + 1; count <= link.sent(); ++count)
      if (link.frame(count).task == task) *child = static_cast<int32_t>(i);
  }
  return ended_from(*record);
}

EndedTask Driver::ended_from(const TaskRecord& record) {
  EndedTask task;
  task.callable = record.callable;
  task.members = record.members;
  task.timeout_ms = record.timeout_ms;
  task.place = record.place;
  return task;
}

const std::string& Driver::callable_name(uint32_t callable) const {
  return callables_[callable].name;
}

std::vector<std::pair<int64_t, int64_t>> Driver::failures() {
  Role role(*this, Role::kAsks);
  return engine_->failures();
}

std::vector<std::pair<int64_t, int64_t>> Driver::poisonings() {
  Role role(*this, Role::kAsks);
  return engine_->poisonings();
}

std::optional<EndedTask> Driver::failure_of(const RunOutcomes& outcomes, int64_t task) {
  Role role(*this, Role::kAsks);
  const auto found = outcomes.ended.find(task);
  return found == outcomes.ended.end() ? std::nullopt : std::optional<EndedTask>(found->second);
}

DriverStatistics Driver::statistics() {
  Role role(*this, Role::kAsks);
  DriverStatistics now = counts_;
  for (const auto& link : links_) now.in_flight += link->in_flight();
  now.waiting = records_.live() - std::min<uint64_t>(records_.live(), now.in_flight);
  now.saved_bytes = regions_.saved_bytes();
  now.most_saved_bytes = regions_.most_saved_bytes();
  return now;
}

pto_frame_view Driver::view_of(const Frame& frame, pto_frame* head) const {
  const TaskRecord& record = *const_cast<Records&>(records_).find(frame.task);
  const bool has_arguments = (record.flags & TaskRecord::kHasArguments) != 0;
  const BlobPlace blob = has_arguments ? blob_of(record, frame.member) : BlobPlace{nullptr, 0};
  std::memcpy(head->callable, callables_[record.callable].digest.data(), PTO_DIGEST_BYTES);
  head->required_child = frame.required_child;
  head->required_count = frame.required_child == kNone ? 0 : frame.required_count;
  head->config = record.config;
  head->number = static_cast<uint64_t>(frame.task);
  head->bytes = blob.bytes;
  head->kind = PTO_FRAME_TASK;
  head->flags = has_arguments ? PTO_FRAME_HAS_ARGUMENTS : 0;
  return {head, blob.data};
}

}  // namespace pto::hierarchy
