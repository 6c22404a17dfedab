// The access policy of a core of the chip, for the compiler of CANN. The two halves of the executor
// are compiled separately; __DAV_CUBE__ and __DAV_VEC__ select the half.
//
// A core's data cache is not coherent with anything. `dcci` writes changed lines to memory and then
// drops them, so it serves clean and invalidate.
#pragma once

#include "abi/launch.h"
#include "pto/abi/kernel.h"

#if defined(__DAV_CUBE__) == defined(__DAV_VEC__)
#error "Compile this for one type of core: define one of __DAV_CUBE__ and __DAV_VEC__"
#endif

namespace pto::a2a3 {

struct ChipCore {
  template <class Value>
  static __aicore__ Value load(const __gm__ Value* from) {
    return *static_cast<const volatile __gm__ Value*>(from);
  }
  template <class Value>
  static __aicore__ void store(__gm__ Value* to, Value value) {
    *static_cast<volatile __gm__ Value*>(to) = value;
  }
  template <class Value>
  static __aicore__ Value load_flag(const __gm__ Value* from) {
    return load(from);
  }
  template <class Value>
  static __aicore__ void store_flag(__gm__ Value* to, Value value) {
    store(to, value);
  }
  static __aicore__ void clean(__gm__ void* start, uint64_t bytes) {
    const uint64_t end = reinterpret_cast<uint64_t>(start) + bytes;
    uint64_t line = reinterpret_cast<uint64_t>(start) / PTO_A2A3_LINE * PTO_A2A3_LINE;
    for (; line < end; line += PTO_A2A3_LINE) {
      dcci(reinterpret_cast<__gm__ void*>(line), SINGLE_CACHE_LINE, CACHELINE_OUT);
    }
  }
  static __aicore__ void invalidate(__gm__ void* start, uint64_t bytes) {
    clean(start, bytes);
    dsb(DSB_ALL);
  }
  static __aicore__ void invalidate_all() {
    clean_all();
    dsb(DSB_ALL);
  }
  static __aicore__ void clean_all() {
    dcci(reinterpret_cast<__gm__ void*>(uint64_t{0}), ENTIRE_DATA_CACHE, CACHELINE_OUT);
  }
  static __aicore__ void order_stores() { dsb(DSB_ALL); }
  static __aicore__ void order_loads() { dsb(DSB_ALL); }

  static __aicore__ uint32_t block() { return static_cast<uint32_t>(get_block_idx()); }
  static __aicore__ uint32_t blocks() { return static_cast<uint32_t>(get_block_num()); }
  static __aicore__ uint32_t subblock() { return static_cast<uint32_t>(get_subblockid()); }
  // The upper bits of the register are not part of the number.
  static __aicore__ uint32_t physical() { return static_cast<uint32_t>(get_coreid()) & 0xFFF; }
  static __aicore__ void set_flag_base(uint64_t address) { set_ffts_base_addr(address); }
  // Kernels of a card print nothing.
  static __aicore__ void set_texts(uint64_t) {}
  static constexpr __aicore__ bool is_aic() {
#ifdef __DAV_CUBE__
    return true;
#else
    return false;
#endif
  }
  static __aicore__ uint32_t load_doorbell() {
    uint32_t value;
    __asm__ volatile("MOV %0, DATA_MAIN_BASE\n" : "=l"(value));
    return value;
  }
  static __aicore__ void store_cond(uint32_t value) { set_cond(value); }

  static __aicore__ bool is_code(uint64_t address) { return address >= 4096; }
  // The kernel's vector, cube and copy instructions end before the call returns.
  static __aicore__ bool call(uint64_t kernel, __gm__ uint64_t* arguments) {
    using Kernel = void (*)(__gm__ int64_t*);
    reinterpret_cast<Kernel>(kernel)(reinterpret_cast<__gm__ int64_t*>(arguments));
    pipe_barrier(PIPE_ALL);
    return true;
  }
  static __aicore__ void wait(uint32_t) {}
};

}  // namespace pto::a2a3
