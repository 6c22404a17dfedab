// The part of a kernel library that reports each access to memory to the simulator.
//
// The compiler includes this file before the source of a kernel when accesses are measured. With
// -fsanitize=thread the compiler inserts calls of the functions below. Their names belong to the
// ThreadSanitizer, but its library is not linked. Compilers know some of these functions, so their
// parameters have the types that the compilers expect. memcpy, memmove and memset reach their
// wrappers through the linker's --wrap option.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__clang__)  // clang reports these operations itself
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
#endif

extern "C" {
void* __real_memcpy(void* to, const void* from, size_t bytes);
void* __real_memmove(void* to, const void* from, size_t bytes);
void* __real_memset(void* to, int value, size_t bytes);
int __real_memcmp(const void* one, const void* other, size_t bytes);
}

// Functions that the compiler does not instrument.
#if defined(__clang__)  // here no_sanitize would still instrument atomic operations
#define PTO_PLAIN __attribute__((disable_sanitizer_instrumentation, used))
#else
#define PTO_PLAIN __attribute__((no_sanitize("thread"), used))
#endif

using pto_access_listener = void (*)(uint64_t address, uint64_t bytes, int32_t is_write);

PTO_PLAIN static void pto_ignore_access(uint64_t, uint64_t, int32_t) {}
static pto_access_listener pto_report_access = pto_ignore_access;

PTO_PLAIN static void pto_report(const volatile void* address, uint64_t bytes, int32_t is_write) {
  pto_report_access(reinterpret_cast<uint64_t>(address), bytes, is_write);
}

extern "C" {

// Selects the function that gets the accesses. The simulator calls it when it loads the kernel.
__attribute__((visibility("default"))) PTO_PLAIN void pto_listen_to_accesses(
    pto_access_listener listener) {
  pto_report_access = listener;
}

PTO_PLAIN inline void __tsan_init() {}
PTO_PLAIN inline void __tsan_func_entry(void*) {}
PTO_PLAIN inline void __tsan_func_exit(void*) {}
PTO_PLAIN inline void __tsan_vptr_update(void* address, void*) {
  pto_report(address, sizeof(void*), 1);
}
PTO_PLAIN inline void __tsan_vptr_read(void** address) {
  pto_report(address, sizeof(void*), 0);
}
PTO_PLAIN inline void __tsan_read_range(void* address, long bytes) {
  pto_report(address, static_cast<uint64_t>(bytes), 0);
}
PTO_PLAIN inline void __tsan_write_range(void* address, long bytes) {
  pto_report(address, static_cast<uint64_t>(bytes), 1);
}

#define PTO_PLAIN_ACCESS(prefix, bytes)                                \
  PTO_PLAIN inline void __tsan_##prefix##read##bytes(void* address) {  \
    pto_report(address, bytes, 0);                                     \
  }                                                                    \
  PTO_PLAIN inline void __tsan_##prefix##write##bytes(void* address) { \
    pto_report(address, bytes, 1);                                     \
  }
#define PTO_PLAIN_ACCESSES(prefix) \
  PTO_PLAIN_ACCESS(prefix, 1)      \
  PTO_PLAIN_ACCESS(prefix, 2)      \
  PTO_PLAIN_ACCESS(prefix, 4)      \
  PTO_PLAIN_ACCESS(prefix, 8)      \
  PTO_PLAIN_ACCESS(prefix, 16)
PTO_PLAIN_ACCESSES()
PTO_PLAIN_ACCESSES(unaligned_)
PTO_PLAIN_ACCESSES(volatile_)
PTO_PLAIN_ACCESSES(unaligned_volatile_)

PTO_PLAIN inline void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  pto_report(from, bytes, 0);
  pto_report(to, bytes, 1);
  return __real_memcpy(to, from, bytes);
}
PTO_PLAIN inline void* __wrap_memmove(void* to, const void* from, size_t bytes) {
  pto_report(from, bytes, 0);
  pto_report(to, bytes, 1);
  return __real_memmove(to, from, bytes);
}
PTO_PLAIN inline void* __wrap_memset(void* to, int value, size_t bytes) {
  pto_report(to, bytes, 1);
  return __real_memset(to, value, bytes);
}
// Newer versions of clang call these functions.
PTO_PLAIN inline void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  return __wrap_memcpy(to, from, bytes);
}
PTO_PLAIN inline void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  return __wrap_memmove(to, from, bytes);
}
PTO_PLAIN inline void* __tsan_memset(void* to, int value, size_t bytes) {
  return __wrap_memset(to, value, bytes);
}
PTO_PLAIN inline int __wrap_memcmp(const void* one, const void* other, size_t bytes) {
  pto_report(one, bytes, 0);
  pto_report(other, bytes, 0);
  return __real_memcmp(one, other, bytes);
}

// An atomic operation counts as a read and a write.
#define PTO_BOTH(type, address)         \
  pto_report(address, sizeof(type), 0); \
  pto_report(address, sizeof(type), 1); \
  auto* target = static_cast<volatile type*>(address)
#define PTO_ATOMIC_CHANGE(type, name, operation)                                       \
  PTO_PLAIN inline type __tsan_atomic##name(volatile void* address, type value, int) { \
    PTO_BOTH(type, address);                                                           \
    return operation(target, value, __ATOMIC_SEQ_CST);                                 \
  }
#define PTO_ATOMIC_EXCHANGE(type, name, is_weak)                                                  \
  PTO_PLAIN inline bool __tsan_atomic##name(volatile void* address, void* expected, type desired, \
                                            int, int) {                                           \
    PTO_BOTH(type, address);                                                                      \
    return __atomic_compare_exchange_n(target, static_cast<type*>(expected), desired, is_weak,    \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
  }
#define PTO_ATOMIC(bits, type)                                                                 \
  PTO_PLAIN inline type __tsan_atomic##bits##_load(const volatile void* address, int) {        \
    PTO_BOTH(const type, address);                                                             \
    return __atomic_load_n(target, __ATOMIC_SEQ_CST);                                          \
  }                                                                                            \
  PTO_PLAIN inline void __tsan_atomic##bits##_store(volatile void* address, type value, int) { \
    PTO_BOTH(type, address);                                                                   \
    __atomic_store_n(target, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                            \
  PTO_ATOMIC_CHANGE(type, bits##_exchange, __atomic_exchange_n)                                \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_add, __atomic_fetch_add)                                \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_sub, __atomic_fetch_sub)                                \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_and, __atomic_fetch_and)                                \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_or, __atomic_fetch_or)                                  \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_xor, __atomic_fetch_xor)                                \
  PTO_ATOMIC_CHANGE(type, bits##_fetch_nand, __atomic_fetch_nand)                              \
  PTO_ATOMIC_EXCHANGE(type, bits##_compare_exchange_strong, false)                             \
  PTO_ATOMIC_EXCHANGE(type, bits##_compare_exchange_weak, true)                                \
  PTO_PLAIN inline type __tsan_atomic##bits##_compare_exchange_val(                            \
      volatile void* address, type expected, type desired, int, int) {                         \
    PTO_BOTH(type, address);                                                                   \
    __atomic_compare_exchange_n(target, &expected, desired, false, __ATOMIC_SEQ_CST,           \
                                __ATOMIC_SEQ_CST);                                             \
    return expected;                                                                           \
  }
PTO_ATOMIC(8, uint8_t)
PTO_ATOMIC(16, uint16_t)
PTO_ATOMIC(32, uint32_t)
PTO_ATOMIC(64, uint64_t)
PTO_PLAIN inline void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
PTO_PLAIN inline void __tsan_atomic_signal_fence(int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

}  // extern "C"

#undef PTO_BOTH
#undef PTO_ATOMIC
#undef PTO_ATOMIC_CHANGE
#undef PTO_ATOMIC_EXCHANGE
#undef PTO_PLAIN_ACCESS
#undef PTO_PLAIN_ACCESSES
#undef PTO_PLAIN
