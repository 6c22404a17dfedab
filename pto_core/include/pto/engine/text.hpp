// Builds a text in a buffer of the caller. The text always ends with a null character, and is
// truncated if the buffer is full.
//
// A runtime must not use the C library's formatting functions, because it also runs on devices
// without that library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pto::engine {

// An address, which is written as 0x and hexadecimal digits.
struct Address {
  uint64_t value;
};

class Text {
 public:
  Text(char* out, size_t capacity) : out_(out), capacity_(capacity) {
    if (capacity_ > 0) out_[0] = '\0';
  }

  template <class... Parts>
  Text& add(Parts... parts) {
    (append(parts), ...);
    return *this;
  }

  size_t length() const { return length_; }

 private:
  void append(const char* text) {
    for (; *text != '\0'; ++text) put(*text);
  }

  void append(uint64_t value) {
    char digits[20];
    int count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    while (count > 0) put(digits[--count]);
  }

  void append(Address address) {
    append("0x");
    int shift = 60;
    while (shift > 0 && (address.value >> shift) == 0) shift -= 4;
    for (; shift >= 0; shift -= 4) put("0123456789abcdef"[(address.value >> shift) & 15]);
  }

  void append(int64_t value) {
    if (value < 0) put('-');
    append(value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value));
  }

  // Append a part of another type by calling write(text, part) of the namespace of that type.
  template <class Part, std::enable_if_t<std::is_class_v<Part>, bool> = true>
  void append(const Part& part) {
    write(*this, part);
  }

  void append(uint32_t value) { append(uint64_t{value}); }
  void append(int32_t value) { append(int64_t{value}); }

  void put(char letter) {
    if (length_ + 1 >= capacity_) return;
    out_[length_++] = letter;
    out_[length_] = '\0';
  }

  char* out_;
  size_t capacity_;
  size_t length_ = 0;
};

}  // namespace pto::engine
