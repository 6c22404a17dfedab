// An array that grows, for plain data. It does not use the C++ library, which the AICPU may lack.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace pto::a2a3 {

template <class Element>
class Array {
  static_assert(std::is_trivially_copyable_v<Element>);

 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(elements_); }

  uint32_t count() const { return count_; }
  Element& operator[](uint32_t index) { return elements_[index]; }
  const Element& operator[](uint32_t index) const { return elements_[index]; }

  // Inserts an element before `index`. Returns false if memory is exhausted.
  bool insert(uint32_t index, const Element& element) {
    if (count_ == capacity_ && !grow()) return false;
    std::memmove(elements_ + index + 1, elements_ + index, (count_ - index) * sizeof(Element));
    elements_[index] = element;
    ++count_;
    return true;
  }
  void remove(uint32_t index) {
    --count_;
    std::memmove(elements_ + index, elements_ + index + 1, (count_ - index) * sizeof(Element));
  }

 private:
  bool grow() {
    const uint32_t capacity = capacity_ == 0 ? 16 : 2 * capacity_;
    void* memory = std::realloc(static_cast<void*>(elements_), capacity * sizeof(Element));
    if (memory == nullptr) return false;
    elements_ = static_cast<Element*>(memory);
    capacity_ = capacity;
    return true;
  }

  Element* elements_ = nullptr;
  uint32_t count_ = 0;
  uint32_t capacity_ = 0;
};

}  // namespace pto::a2a3
