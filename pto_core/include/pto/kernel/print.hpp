// pto_printf and PTO_ASSERT for kernels in C++:
//
//   #include "pto/kernel/print.hpp"
//
//   pto_printf("row %d: %g", row, sum);
//   PTO_ASSERT(row < rows, "tile %d", tile);
//
// A line of pto_printf appears in the log with the kernel, the task, the core and the source line,
// as soon as the call returns. A PTO_ASSERT that fails ends its kernel, and the run raises a
// TaskFailedError with the condition, its operands and the text. Destructors of the kernel do not
// run then. In the condition, put operators that bind less tightly than == into parentheses: & | ^.
//
// The texts are formatted in the kernel, so it must run on a host: on the simulator or the fake
// card. Only the code of a kernel is uploaded to a card, and no texts.
#pragma once

#ifdef PTO_AICORE
#error \
    "pto_printf and PTO_ASSERT are not available in kernels for a card; remove them, or use #ifdef"
#endif

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

// Gets each text. If `is_failure` is 1, it ends the kernel and does not return.
using pto_text_listener = void (*)(const char* file, int32_t line, int32_t is_failure,
                                   const char* text);

namespace pto_kernel {

constexpr int kMostBytes = 1024;  // of a text, with its final zero; a longer one is cut

inline pto_text_listener listener = nullptr;

inline void send(const char* file, int32_t line, int32_t is_failure, const char* text) {
  if (listener != nullptr) return listener(file, line, is_failure, text);
  std::fprintf(stderr, "%s:%d: %s\n", file, static_cast<int>(line), text);
}

__attribute__((cold, noinline, format(printf, 3, 4))) inline void print(const char* file,
                                                                        int32_t line,
                                                                        const char* format, ...) {
  char text[kMostBytes];
  va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  send(file, line, 0, text);
}

// Writes an operand of a condition; returns the number of characters, as snprintf does.
template <class Operand>
int show(char* text, size_t capacity, const Operand& operand) {
  if constexpr (std::is_same_v<Operand, bool>) {
    return std::snprintf(text, capacity, operand ? "true" : "false");
  } else if constexpr (std::is_enum_v<Operand>) {
    return std::snprintf(text, capacity, "%lld", static_cast<long long>(operand));
  } else if constexpr (std::is_integral_v<Operand> && std::is_signed_v<Operand>) {
    return std::snprintf(text, capacity, "%lld", static_cast<long long>(operand));
  } else if constexpr (std::is_integral_v<Operand>) {
    return std::snprintf(text, capacity, "%llu", static_cast<unsigned long long>(operand));
  } else if constexpr (std::is_convertible_v<Operand, double>) {
    return std::snprintf(text, capacity, "%.9g", static_cast<double>(operand));
  } else if constexpr (std::is_convertible_v<Operand, const volatile void*>) {
    return std::snprintf(text, capacity, "%p",
                         const_cast<const void*>(static_cast<const volatile void*>(operand)));
  } else {
    return std::snprintf(text, capacity, "?");
  }
}

// A temporary operand ends before its value is written, so small ones are copied.
template <class Type>
using Kept = std::conditional_t<!std::is_array_v<Type> && std::is_trivially_copyable_v<Type> &&
                                    sizeof(Type) <= 16,
                                Type, const Type&>;

template <class Left, class Right>
struct Comparison {
  Kept<Left> left;
  Kept<Right> right;
  const char* sign;
  bool result;

  explicit constexpr operator bool() const { return result; }
  void write(char* text, size_t capacity) const {
    char one[40], other[40];
    show(one, sizeof one, left);
    show(other, sizeof other, right);
    std::snprintf(text, capacity, " (%s %s %s)", one, sign, other);
  }
};

template <class Left>
struct Operand {
  Kept<Left> left;

  explicit constexpr operator bool() const { return static_cast<bool>(left); }
  void write(char* text, size_t capacity) const {
    char one[40];
    show(one, sizeof one, left);
    std::snprintf(text, capacity, " (%s)", one);
  }

#define PTO_KERNEL_COMPARE(sign)                                              \
  template <class Right>                                                      \
  constexpr Comparison<Left, Right> operator sign(const Right& right) const { \
    return {left, right, #sign, left sign right};                             \
  }
  PTO_KERNEL_COMPARE(==)
  PTO_KERNEL_COMPARE(!=)
  PTO_KERNEL_COMPARE(<)
  PTO_KERNEL_COMPARE(<=)
  PTO_KERNEL_COMPARE(>)
  PTO_KERNEL_COMPARE(>=)
#undef PTO_KERNEL_COMPARE
};

// `Condition() << a < b` is a Comparison of a and b, because << binds tighter than <.
struct Condition {
  template <class Left>
  constexpr Operand<Left> operator<<(const Left& left) const {
    return {left};
  }
};

inline void write(bool, char*, size_t) {}  // of a condition with && or ||
template <class Checked>
void write(const Checked& checked, char* text, size_t capacity) {
  checked.write(text, capacity);
}

template <class Checked>
[[noreturn]] __attribute__((cold, noinline, format(printf, 5, 6))) void fail(
    const char* file, int32_t line, const char* condition, const Checked& checked,
    const char* format, ...) {
  char operands[96] = "", words[kMostBytes / 2], text[kMostBytes];
  write(checked, operands, sizeof operands);
  va_list values;
  va_start(values, format);
  std::vsnprintf(words, sizeof words, format, values);
  va_end(values);
  std::snprintf(text, sizeof text, "%.300s%s%s%s", condition, operands, *words != 0 ? ": " : "",
                words);
  send(file, line, 1, text);
  std::abort();
}

}  // namespace pto_kernel

// The backend calls it when it loads the kernel.
extern "C" __attribute__((visibility("default"), used)) inline void pto_listen_to_texts(
    pto_text_listener listener) {
  pto_kernel::listener = listener;
}

#define pto_printf(...) pto_kernel::print(__FILE__, __LINE__, __VA_ARGS__)

#define PTO_ASSERT(condition, ...)                                               \
  do {                                                                           \
    if (const auto& checked = pto_kernel::Condition() << condition; !checked) {  \
      pto_kernel::fail(__FILE__, __LINE__, #condition, checked, "" __VA_ARGS__); \
    }                                                                            \
  } while (false)
