// Ready tasks. Both queues are first in, first out, and have no limit:
//
//   SharedReady  one producer at a time, any number of claiming schedulers, no lock: an array that
//                only grows during a run, with the claimed part in front.
//   LocalReady   belongs to one scheduler; linked through the task records.
#pragma once

#include <atomic>
#include <cstdint>

#include "graph.hpp"

namespace pto::build_graph {

class SharedReady {
 public:
  bool create(Memory& memory) { return entries_.create(memory); }
  void destroy() { entries_.destroy(); }

  // Call only while no other thread uses the queue.
  void restart() {
    staged_ = 0;
    tail_.store(0, std::memory_order_relaxed);
    head_.store(0, std::memory_order_relaxed);
  }

  // Called by the producer: appends a task, which other threads see after the next expose().
  // Returns false if memory is exhausted.
  bool stage(int32_t task) {
    if (!entries_.grow_to(staged_)) return false;
    entries_[staged_++] = task;
    return true;
  }

  // Called by the producer: makes the staged tasks visible. The producer stores the tail and then
  // checks for schedulers without work. Such a scheduler first enters their set and then calls
  // has_work(). So at least one of the two threads sees the change of the other.
  void expose() { tail_.store(staged_, std::memory_order_seq_cst); }

  bool has_work() const { return size() > 0; }

  uint32_t size() const {
    const uint32_t head = head_.load(std::memory_order_acquire);
    return tail_.load(std::memory_order_seq_cst) - head;
  }

  // Takes at most `limit` tasks from the front and returns their number. Any scheduler may call
  // this. Because of the acquire load of `head_`, the tail that is read next is at least as new as
  // the tail that the last claiming scheduler saw.
  uint32_t claim(int32_t* out, uint32_t limit) {
    uint32_t head = head_.load(std::memory_order_acquire);
    uint32_t count = 0;
    do {
      const uint32_t available = tail_.load(std::memory_order_acquire) - head;
      count = available < limit ? available : limit;
      if (count == 0) return 0;
    } while (!head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    for (uint32_t i = 0; i < count; ++i) out[i] = entries_[head + i];
    return count;
  }

 private:
  ChunkedArray<int32_t, 14> entries_;
  uint32_t staged_ = 0;
  alignas(64) std::atomic<uint32_t> tail_{0};
  alignas(64) std::atomic<uint32_t> head_{0};
};

class LocalReady {
 public:
  void restart() {
    first_ = last_ = kNoTask;
    size_ = 0;
  }

  void push(const Graph& graph, int32_t task) {
    graph.record(task).next_ready = kNoTask;
    if (first_ == kNoTask) {
      first_ = task;
    } else {
      graph.record(last_).next_ready = task;
    }
    last_ = task;
    ++size_;
  }

  int32_t pop(const Graph& graph) {
    const int32_t task = first_;
    first_ = graph.record(task).next_ready;
    --size_;
    return task;
  }

  uint32_t size() const { return size_; }

 private:
  int32_t first_ = kNoTask;
  int32_t last_ = kNoTask;
  uint32_t size_ = 0;
};

}  // namespace pto::build_graph
