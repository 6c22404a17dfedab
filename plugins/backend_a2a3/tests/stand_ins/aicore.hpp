// Stand-ins for what the compiler of a core knows, so that a compiler for the host finds errors in
// code of a core. Nothing here computes; the code is checked and not run.
//
// Clang refuses to mix pointers of different address spaces, as the compiler of a core does.
#pragma once

#include <stdint.h>

#define __gm__ __attribute__((address_space(1)))
#define __aicore__
#define __global__ __attribute__((used))

enum pipe_t { PIPE_ALL };
enum cache_line_t { SINGLE_CACHE_LINE, ENTIRE_DATA_CACHE };
enum dcci_dst_t { CACHELINE_ALL, CACHELINE_UB, CACHELINE_OUT };
enum mem_dsb_t { DSB_ALL, DSB_DDR, DSB_UB };

int64_t get_block_idx();
int64_t get_block_num();
int64_t get_subblockid();
int64_t get_coreid();
void set_cond(uint32_t value);
void set_ffts_base_addr(uint64_t address);
void pipe_barrier(pipe_t pipe);
void dsb(mem_dsb_t kind);
void dcci(__gm__ void* line, cache_line_t extent, dcci_dst_t destination);
