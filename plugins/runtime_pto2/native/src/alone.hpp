// Operations on a word that several schedulers share, and that cost nothing extra where there is
// only one: `alone` says that no other thread writes the word during this run.
#pragma once

#include <atomic>

namespace pto::ring_buffer {

// Each gives the value from before. Sequentially consistent unless alone.
template <class Word>
inline Word take(std::atomic<Word>& word, Word amount, bool alone) {
  if (!alone) return word.fetch_sub(amount, std::memory_order_seq_cst);
  const Word before = word.load(std::memory_order_relaxed);
  word.store(before - amount, std::memory_order_relaxed);
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
    return word.compare_exchange_weak(expected, value, std::memory_order_seq_cst,
                                      std::memory_order_seq_cst);
  }
  const Word before = word.load(std::memory_order_relaxed);
  if (before != expected) {
    expected = before;
    return false;
  }
  word.store(value, std::memory_order_relaxed);
  return true;
}

}  // namespace pto::ring_buffer
