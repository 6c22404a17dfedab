// Atomic operations on a word that several schedulers share. With only one scheduler they have no
// extra cost: `alone` states that no other thread writes the word during this run.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::ring_buffer {

// add() and swap() return the previous value. Unless `alone` is set, they have acquire and release
// order.
template <class Word>
inline Word add(std::atomic<Word>& word, Word amount, bool alone) {
  if (!alone) return word.fetch_add(amount, std::memory_order_acq_rel);
  const Word before = word.load(std::memory_order_relaxed);
  word.store(before + amount, std::memory_order_relaxed);
  return before;
}

template <class Word>
inline Word swap(std::atomic<Word>& word, Word value, bool alone) {
  if (!alone) return word.exchange(value, std::memory_order_acq_rel);
  const Word before = word.load(std::memory_order_relaxed);
  word.store(value, std::memory_order_relaxed);
  return before;
}

// A compare-and-exchange. On failure, `expected` receives the current value. The call may fail
// spuriously.
template <class Word>
inline bool replace(std::atomic<Word>& word, Word& expected, Word value, bool alone) {
  if (!alone) {
    return word.compare_exchange_weak(expected, value, std::memory_order_acq_rel,
                                      std::memory_order_acquire);
  }
  const Word before = word.load(std::memory_order_relaxed);
  if (before != expected) {
    expected = before;
    return false;
  }
  word.store(value, std::memory_order_relaxed);
  return true;
}

// Subtract the caller's share from a count that no thread increases. Return true if it was the last
// share; the caller then sees the writes of all other threads that had a share. A thread that reads
// the value 1 has the last share, and needs no atomic read-modify-write.
inline bool take_last(std::atomic<uint32_t>& count, bool alone) {
  if (count.load(std::memory_order_acquire) == 1) {
    count.store(0, std::memory_order_relaxed);
    return true;
  }
  return add(count, ~uint32_t{0}, alone) == 1;
}

}  // namespace pto::ring_buffer
