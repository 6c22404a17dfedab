/* An endpoint: how frames reach one child of a Worker, and how its answers come back.
 *
 * A transport's library exports one function, pto_transport_entry. The core owns the memory and the
 * bells, forks the child, waits and reads the clock; a transport moves bytes. It has no thread that
 * the core does not know of, takes no lock over a fork, and none of its calls blocks.
 *
 *   core, before the fork   memory_needed, then a mapping of so many zeroed bytes
 *   parent                  open_parent -> [ submit | poll ]* -> close_parent
 *   child                   open_child -> [ receive -> take | answer ]* -> close_child
 *
 * One thread at a time calls an end. Frames arrive in the order of submits, answers in the order in
 * which they were given. After either side has put something in, it rings the other side's bell.
 *
 * What arrives may be anything: a transport checks every length and index before it follows it, and
 * says PTO_ENDPOINT_PROTOCOL, with words, when it cannot be.
 */
#ifndef PTO_ABI_ENDPOINT_H
#define PTO_ABI_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

enum { PTO_DIGEST_BYTES = 32 };

/* Kinds of frames. */
enum {
  PTO_FRAME_TASK = 0,   /* run a callable; counted: a connection's first task frame is number 1 */
  PTO_FRAME_CONTROL = 1 /* do what the bytes say, answer with a reply; not counted */
};

/* Flags of a task frame. */
enum { PTO_FRAME_HAS_ARGUMENTS = 1 /* else the callable is called without any */ };

/* The head of a frame; `bytes` bytes follow: of a task the argument blob, see pto/abi/arguments.h.
 */
typedef struct pto_frame {
  uint8_t callable[PTO_DIGEST_BYTES]; /* digest; zero in a control frame */
  uint64_t required_count;            /* 0: starts at once */
  int32_t required_child;             /* whose task frame required_count must have succeeded */
  uint32_t config;                    /* number of a configuration that a control frame brought */
  uint64_t number; /* of the task, for messages; of a control frame: its reply's */
  uint32_t bytes;
  uint16_t kind;
  uint16_t flags;
} pto_frame;

PTO_ABI_ASSERT(sizeof(pto_frame) == 64, "a frame's head is one cache line");
PTO_ABI_ASSERT(offsetof(pto_frame, required_count) == 32, "pto_frame.required_count");
PTO_ABI_ASSERT(offsetof(pto_frame, number) == 48, "pto_frame.number");
PTO_ABI_ASSERT(offsetof(pto_frame, bytes) == 56, "pto_frame.bytes");

typedef struct pto_frame_view {
  const pto_frame* frame;
  const void* data; /* `frame->bytes` bytes, aligned to 8 */
} pto_frame_view;

PTO_ABI_ASSERT(sizeof(pto_frame_view) == 2 * sizeof(void*), "pto_frame_view");

/* Kinds of answers. */
enum {
  PTO_ANSWER_COMPLETED = 0, /* task frames up to `number` have ended, the last with `outcome` */
  PTO_ANSWER_REPLY = 1      /* to the control frame `number` */
};

/* How a task frame ended. */
enum {
  PTO_OUTCOME_SUCCEEDED = 0, /* only such ones may be told by the number of a later one */
  PTO_OUTCOME_FAILED = 1,
  PTO_OUTCOME_SKIPPED = 2 /* what it required had failed, so it was not started */
};

typedef struct pto_answer {
  uint64_t number;
  const void* data; /* why it failed, or the reply; NULL when bytes is 0 */
  uint32_t bytes;
  uint16_t kind;
  uint16_t outcome;
} pto_answer;

PTO_ABI_ASSERT(sizeof(pto_answer) == 24, "pto_answer");

/* What one side sleeps on, in memory that both see. Written through pto_bell_ring() and by the
 * core's waiting; see pto/engine/bell.hpp. */
typedef struct pto_bell {
  uint32_t rung;     /* counts; the futex word */
  uint32_t sleepers; /* not 0: some are about to sleep, or do; whoever wakes them clears it */
  uint32_t reserved[14];
} pto_bell;

PTO_ABI_ASSERT(sizeof(pto_bell) == 64, "a bell has its own cache line");

/* What both ends of a connection are made from; the same values on either side of the fork. */
typedef struct pto_connection {
  void* memory; /* shared, aligned to 4096, zeroed before open_parent */
  uint64_t memory_bytes;
  pto_bell* parent_bell; /* one for all endpoints of a Worker */
  pto_bell* child_bell;  /* one a child */
  uint32_t queue_frames; /* frames that must fit at once when each has 64 bytes of data */
  uint32_t queue_bytes;  /* and as many that have so many bytes in all, heads included: also the
                            largest frame; of an answer the largest data are a head less */
} pto_connection;

PTO_ABI_ASSERT(sizeof(pto_connection) == 40, "pto_connection");

/* What calls give that count otherwise. */
enum {
  PTO_ENDPOINT_CLOSED = -1,  /* the other end closed */
  PTO_ENDPOINT_PROTOCOL = -2 /* what arrived cannot be; last_error has words */
};

enum {
  PTO_TRANSPORT_SAME_ADDRESSES = 1u << 0, /* both sides see the Worker's memory where it is */
  PTO_TRANSPORT_IN_ORDER = 1u << 1        /* frames of one child arrive in order; required today */
};

typedef struct pto_parent_end pto_parent_end;
typedef struct pto_child_end pto_child_end;

typedef struct pto_transport_api {
  uint32_t abi_version;
  uint32_t capabilities; /* PTO_TRANSPORT_* */
  const char* name;

  /* With `memory` and the bells NULL. At least one byte. */
  uint64_t (*memory_needed)(const pto_connection* connection);

  /* NULL when memory is exhausted. The connection's memory is zeroed; it may be opened again, after
   * close_parent and zeroing, for a child that takes the place of one that is gone. */
  pto_parent_end* (*open_parent)(const pto_connection* connection);
  /* Takes frames in order, copies them, and gives how many; fewer than `count` when it is full. A
   * frame that is too large is PTO_ENDPOINT_PROTOCOL where it is the first; the end stays good. */
  int32_t (*submit)(pto_parent_end* end, const pto_frame_view* frames, int32_t count);
  /* Gives up to `count` answers, which stay until the next poll. Successes may be merged. What the
   * child gave before it closed, or died, comes before PTO_ENDPOINT_CLOSED. */
  int32_t (*poll)(pto_parent_end* end, pto_answer* answers, int32_t count);
  /* The words of the last PTO_ENDPOINT_PROTOCOL; empty when there was none. */
  const char* (*parent_error)(const pto_parent_end* end);
  void (*close_parent)(pto_parent_end* end);

  pto_child_end* (*open_child)(const pto_connection* connection);
  /* Shows up to `count` frames, oldest first, without taking them: they stay until take(), and are
   * shown again. What was submitted before the parent closed comes before PTO_ENDPOINT_CLOSED. */
  int32_t (*receive)(pto_child_end* end, pto_frame_view* frames, int32_t count);
  /* The oldest `count` frames are done with: their room can be used again. */
  void (*take)(pto_child_end* end, int32_t count);
  /* 1: given. 0: no room now; the parent has yet to poll. Task frames are answered in order. */
  int32_t (*answer)(pto_child_end* end, const pto_answer* answer);
  const char* (*child_error)(const pto_child_end* end);
  void (*close_child)(pto_child_end* end);
} pto_transport_api;

PTO_ABI_ASSERT(sizeof(pto_transport_api) == 16 + 12 * sizeof(void*), "pto_transport_api");

/* NULL when the library has no transport of that name. */
typedef const pto_transport_api* (*pto_transport_entry_fn)(const char* name);
#define PTO_TRANSPORT_ENTRY "pto_transport_entry"

#endif
