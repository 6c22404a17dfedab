// Operations on a word that several schedulers share, and that cost nothing extra where there is
// only one: `alone` says that no other thread writes the word during this run.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::ring_buffer {

// Each gives the value from before, and acquires and releases unless alone.
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

// `expected` is what the word was when this fails; it may fail for no reason.
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

// Takes the caller's one of a count that nobody adds to. True for whoever takes the last, who then
// sees what the others did before they took theirs. Who finds a single one left knows that it is
// its own, and pays for no exclusive access.
inline bool take_last(std::atomic<uint32_t>& count, bool alone) {
  if (count.load(std::memory_order_acquire) == 1) {
    count.store(0, std::memory_order_relaxed);
    return true;
  }
  return add(count, ~uint32_t{0}, alone) == 1;
}

}  // namespace pto::ring_buffer
