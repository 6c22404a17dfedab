// A driver with its engine for tests. The children are threads of the test process.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/driver.hpp"
#include "engine/engine.hpp"
#include "pto/engine/bell.hpp"
#include "queue_transport.hpp"

using namespace pto::worker;

constexpr int kSoonMs = 30'000;  // limit for an expected event, on any loaded machine

// Runs a task. Returns false to let the task fail with `message`.
using Body = std::function<bool(int32_t child, const pto_frame& frame, const uint64_t* data,
                                std::string* message)>;

class ThreadChild {
 public:
  ThreadChild(ProgressTable progress, int32_t index, Body body)
      : progress_(progress), index_(index), body_(std::move(body)) {}
  ~ThreadChild() { stop(); }

  // Start the child with these queues, which the driver must receive too.
  void start(Queues* queues) {
    end_ = static_cast<pto_child_end*>(queues);
    is_stopping_ = false;
    thread_ = std::thread([this] { loop(); });
  }
  // Simulate a kill of the child. It takes effect at the latest when the current body ends.
  void stop() {
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  bool is_stopping() const { return is_stopping_; }

  std::atomic<uint32_t> retry_wait_ms{0};  // the wait that it states for the tasks that fail
  // the child dies after it has marked a skip in the progress table and before it answers
  std::atomic<bool> dies_of_skip{false};
  std::atomic<bool> has_died{false};
  std::atomic<bool> receives_only{false};  // receives frames but runs none, like a relay whose
                                           // other host is silent
  std::atomic<bool> lies{false};           // reports that it skipped a frame that requires nothing

 private:
  void loop() {
    pto::engine::Waiter waiter(&progress_.child(index_).bell, nullptr,
                               ProgressTable::spinner(index_), {0, 20'000, 1'000'000});
    uint64_t ended = 0;  // number of task frames of this connection
    while (!is_stopping_) {
      pto_frame_view frames[16];
      int32_t got = 0;
      waiter.wait([&] {
        got = queue_transport::receive(end_, frames, 16);
        return (got > 0 && !receives_only) || is_stopping_;
      });
      if (receives_only) got = 0;
      int32_t done = 0;
      while (done < got && run(*frames[done].frame, frames[done].data, &ended)) done += 1;
      queue_transport::take(end_, done);
    }
  }

  bool run(const pto_frame& frame, const void* data, uint64_t* ended) {
    if (frame.kind == PTO_FRAME_CONTROL) {
      give({frame.number, data, frame.bytes, PTO_ANSWER_REPLY, 0});
      return true;
    }
    if (!may_start(frame) || !progress_.start(index_)) {
      if (is_stopping_) return false;
      progress_.complete(index_, false);
      if (dies_of_skip) has_died = is_stopping_ = true;
      if (!is_stopping_) give({++*ended, nullptr, 0, PTO_ANSWER_COMPLETED, PTO_OUTCOME_SKIPPED});
      return !is_stopping_;
    }
    std::string message;
    const bool succeeded = body_(index_, frame, static_cast<const uint64_t*>(data), &message);
    if (is_stopping_) return false;  // simulates a kill in the body
    progress_.complete(index_, succeeded, retry_wait_ms);
    *ended += 1;
    // Do not answer now: a later answer reports this success too.
    if (succeeded && *ended % 2 == 1 && has_more()) return true;
    const auto bytes = static_cast<uint32_t>(message.size());
    const uint16_t outcome = succeeded ? PTO_OUTCOME_SUCCEEDED : PTO_OUTCOME_FAILED;
    give({*ended, message.data(), bytes, PTO_ANSWER_COMPLETED, outcome});
    return true;
  }

  bool may_start(const pto_frame& frame) {
    if (lies) return false;
    if (frame.required_count == 0) return !is_stopping_;
    const uint64_t count = progress_.child(index_).completed.load() + 1;
    while (!is_stopping_) {
      const Requirement now =
          progress_.requirement(index_, count, frame.required_child, frame.required_count);
      if (now != Requirement::kPending) return now == Requirement::kMet;
      std::this_thread::yield();
    }
    return false;
  }

  bool has_more() {
    const std::lock_guard lock(end_->mutex);
    return end_->frames.size() > 16 && end_->frames[16].head.kind == PTO_FRAME_TASK;
  }

  void give(const pto_answer& answer) { queue_transport::answer(end_, &answer); }

  ProgressTable progress_;
  const int32_t index_;
  const Body body_;
  pto_child_end* end_ = nullptr;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

// A driver with children of one kind. It is also the host, whose lock stands for the GIL.
class ChildGroup : public Host {
 public:
  using MakeEngine = std::function<std::unique_ptr<Engine>(const Configuration&)>;

  ChildGroup(uint32_t children, uint32_t window, Body body, bool repeats_lost = false,
             uint64_t ring_bytes = 1 << 16, const MakeEngine& make_engine = make_native)
      : memory_(ProgressTable::bytes_needed(children) / 64 + 2),
        heap_(ring_bytes * kRings / 1024 + 1),
        lock_(gil_) {
    DriverConfiguration configuration;
    configuration.engine.children.assign(children, {Kind::kSub, window});
    configuration.engine.repeats_lost = repeats_lost;
    for (uint32_t ring = 0; ring < kRings; ++ring)
      configuration.engine.rings[ring] = {aligned(heap_.data()) + ring * ring_bytes, ring_bytes};
    void* progress = memory_.data();
    progress_ = std::make_unique<ProgressTable>(ProgressTable::create(progress, children, 2));
    configuration.progress = progress;
    driver = std::make_unique<Driver>(configuration, make_engine(configuration.engine), *this);
    noop = driver->ask()->core.catalogue.add_callable(Digest{}, "noop");
    for (uint32_t i = 0; i < children; ++i) {
      children_.push_back(std::make_unique<ThreadChild>(*progress_, static_cast<int32_t>(i), body));
      connect(static_cast<int32_t>(i));
    }
  }
  ~ChildGroup() override {
    children_.clear();
    driver->close();
    driver.reset();
  }

  void connect(int32_t child) {
    auto* end = new Queues;
    end->connection = {nullptr, 0,   progress_->parent_bell(), &progress_->child(child).bell,
                       40,      4096};
    driver->children().attach(child, &queue_transport::api(), static_cast<pto_parent_end*>(end),
                              4096, false);
    children_[static_cast<size_t>(child)]->start(end);
    driver->children().set_ready(child);
  }

  static std::unique_ptr<Engine> make_native(const Configuration& configuration) {
    return std::make_unique<Engine>(configuration);
  }

  ProgressTable progress() const { return *progress_; }
  ThreadChild& child(int32_t child) { return *children_[static_cast<size_t>(child)]; }

  void kill(int32_t child, bool returns) {
    children_[static_cast<size_t>(child)]->stop();
    driver->children().lose(child, driver->add_cause("killed"), returns);
    if (returns) connect(child);
  }

  void give_up() override {
    if (std::this_thread::get_id() == maker_ && on_give_up) on_give_up();
    lock_of_thread().unlock();
  }
  void take() override {
    std::unique_lock lock(gil_);
    lock_of_thread() = std::move(lock);
    if (std::this_thread::get_id() == maker_ && on_take) on_take();
  }
  void leave() override {}
  void attend(bool) override {
    looks += 1;
    if (on_poll) on_poll();
  }
  void end_child(int32_t child, int64_t) override {
    ended += 1;
    if (on_end) on_end(child);
    kill(child, true);
  }
  void child_broken(int32_t child, const std::string& message) override {
    broken = message;
    this->child(child).lies = false;
    kill(child, true);
  }
  uint64_t grant(uint32_t, uint64_t bytes) override { return bytes; }

  std::unique_ptr<Driver> driver;
  uint32_t noop = 0;
  int looks = 0;
  int ended = 0;
  std::string broken;
  std::function<void()> on_poll;
  std::function<void()> on_take, on_give_up;  // called on the thread that created the group
  std::function<void(int32_t)> on_end;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct alignas(1024) Slab {
    std::byte bytes[1024];
  };

  static uint64_t aligned(const Slab* memory) { return reinterpret_cast<uintptr_t>(memory); }
  // The thread that created the group has the lock from the start.
  std::unique_lock<std::mutex>& lock_of_thread() {
    if (std::this_thread::get_id() == maker_) return lock_;
    thread_local std::unique_lock<std::mutex> lock;
    return lock;
  }

  std::vector<Line> memory_;
  std::vector<Slab> heap_;
  std::unique_ptr<ProgressTable> progress_;
  std::vector<std::unique_ptr<ThreadChild>> children_;
  std::mutex gil_;
  std::unique_lock<std::mutex> lock_;
  const std::thread::id maker_ = std::this_thread::get_id();
};
