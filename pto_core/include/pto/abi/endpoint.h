/* An endpoint: a connection that carries frames to one child of a Worker, and answers back.
 *
 * A transport's library exports one function, pto_transport_entry. pto_core owns the memory and the
 * bells, forks the child, waits, and reads the clock. A transport only moves bytes. It has no
 * threads of its own, holds no lock during a fork, and none of its functions blocks.
 *
 *   before the fork         memory_needed, then a mapping of that many zeroed bytes
 *   parent                  open_parent -> [ submit | poll ]* -> close_parent
 *   child                   open_child -> [ receive -> take | answer ]* -> close_child
 *
 * Only one thread at a time calls the functions of an end. Frames arrive in the order of their
 * submits, and answers in the order of the answer() calls. After a side has written, it rings the
 * bell of the other side.
 *
 * Received bytes may be invalid. A transport checks every length and index before it uses the
 * value. If a value is invalid, the transport returns PTO_ENDPOINT_PROTOCOL and stores a message.
 */
#ifndef PTO_ABI_ENDPOINT_H
#define PTO_ABI_ENDPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "pto/abi/version.h"

enum { PTO_DIGEST_BYTES = 32 };

/* Kinds of frames. */
enum {
  PTO_FRAME_TASK = 0,   /* run a callable; each connection counts its task frames from 1 */
  PTO_FRAME_CONTROL = 1 /* do an operation and send a reply; not counted */
};

/* Flags of a task frame. */
enum {
  PTO_FRAME_HAS_ARGUMENTS = 1, /* otherwise the callable receives none */
  PTO_FRAME_HAS_KINDS = 2      /* the last scalars state the kinds of a Python task's arguments */
};

/* The head of a frame in the queue. `bytes` bytes of data follow. For a task they are its argument
 * blob (pto/abi/arguments.h). */
typedef struct pto_frame {
  uint8_t callable[PTO_DIGEST_BYTES]; /* digest; zero in a control frame */
  uint64_t required_count;            /* 0: the task starts at once */
  int32_t required_child; /* the child whose task frame number required_count must succeed first */
  uint32_t config;        /* number of the configuration, which a control frame defined */
  uint64_t number;        /* number of the task, for messages; in a control frame: of the reply */
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
  PTO_ANSWER_COMPLETED = 0, /* task frames up to `number` have ended; the last has `outcome` */
  PTO_ANSWER_REPLY = 1      /* the reply to control frame `number` */
};

/* The outcomes of a task frame. */
enum {
  PTO_OUTCOME_SUCCEEDED = 0, /* only successes may be merged into a later answer */
  PTO_OUTCOME_FAILED = 1,
  PTO_OUTCOME_SKIPPED = 2 /* not started, because its requirement failed */
};

typedef struct pto_answer {
  uint64_t number;
  const void* data; /* the reason for the failure, or the reply; NULL if bytes is 0 */
  uint32_t bytes;
  uint16_t kind;
  uint16_t outcome;
} pto_answer;

PTO_ABI_ASSERT(sizeof(pto_answer) == 24, "pto_answer");

/* A word in shared memory on which one side sleeps. Only the functions of pto/engine/bell.hpp write
 * it. */
typedef struct pto_bell {
  uint32_t rung;       /* number of rings; the futex word */
  uint32_t sleepers;   /* not 0: a waiter sleeps or is about to; the ringer clears it */
  uint32_t descriptor; /* 0: sleepers wait on `rung`. Otherwise the waiter polls the eventfd
                          `descriptor` - 1, which every ringing process has inherited */
  uint32_t reserved[13];
} pto_bell;

PTO_ABI_ASSERT(sizeof(pto_bell) == 64, "a bell has its own cache line");

/* The parameters of both ends of a connection; the same values on both sides of the fork. */
typedef struct pto_connection {
  void* memory; /* shared, aligned to 4096, zeroed before open_parent */
  uint64_t memory_bytes;
  pto_bell* parent_bell; /* all endpoints of a Worker share this bell */
  pto_bell* child_bell;  /* each child has a bell */
  uint32_t queue_frames; /* number of frames with 64 bytes of data that must fit at once */
  uint32_t queue_bytes;  /* bytes of frames, heads included, that must fit at once; also the size of
                            the largest frame. The largest data of an answer is 64 bytes less */
} pto_connection;

PTO_ABI_ASSERT(sizeof(pto_connection) == 40, "pto_connection");

/* Results of calls that otherwise return a count. */
enum {
  PTO_ENDPOINT_CLOSED = -1,  /* the other end was closed */
  PTO_ENDPOINT_PROTOCOL = -2 /* invalid bytes arrived; last_error has a message */
};

enum {
  /* Both sides map the Worker's memory at the same address; required by a Worker. */
  PTO_TRANSPORT_SAME_ADDRESSES = 1u << 0,
  PTO_TRANSPORT_IN_ORDER = 1u << 1 /* frames of one child arrive in order; required */
};

typedef struct pto_parent_end pto_parent_end;
typedef struct pto_child_end pto_child_end;

typedef struct pto_transport_api {
  uint32_t abi_version;
  uint32_t capabilities; /* PTO_TRANSPORT_* */
  const char* name;

  /* Returns the number of bytes of memory that the connection needs; at least 1. `memory` and the
   * bells are NULL in this call. */
  uint64_t (*memory_needed)(const pto_connection* connection);

  /* Returns NULL if memory is exhausted. The caller zeroes the connection's memory first. After
   * close_parent it may zero the memory and open the connection again for a restarted child. */
  pto_parent_end* (*open_parent)(const pto_connection* connection);
  /* Copies frames in order and returns their number, which is less than `count` if the queue is
   * full. If the first frame is too large, returns PTO_ENDPOINT_PROTOCOL; the connection stays
   * usable. */
  int32_t (*submit)(pto_parent_end* end, const pto_frame_view* frames, int32_t count);
  /* Returns up to `count` answers, which stay valid until the next poll. Successes may be merged.
   * All answers that the child sent before it closed or died precede PTO_ENDPOINT_CLOSED. */
  int32_t (*poll)(pto_parent_end* end, pto_answer* answers, int32_t count);
  /* Returns the message of the last PTO_ENDPOINT_PROTOCOL; empty if there was none. */
  const char* (*parent_error)(const pto_parent_end* end);
  void (*close_parent)(pto_parent_end* end);

  pto_child_end* (*open_child)(const pto_connection* connection);
  /* Returns up to `count` frames, oldest first, without removing them: they stay until take(). All
   * frames that were submitted before the parent closed precede PTO_ENDPOINT_CLOSED. */
  int32_t (*receive)(pto_child_end* end, pto_frame_view* frames, int32_t count);
  /* Removes the oldest `count` frames; their space can be reused. */
  void (*take)(pto_child_end* end, int32_t count);
  /* Returns 1 if the answer was sent, or 0 if there is no free space before the parent polls. Task
   * frames must be answered in order. */
  int32_t (*answer)(pto_child_end* end, const pto_answer* answer);
  const char* (*child_error)(const pto_child_end* end);
  void (*close_child)(pto_child_end* end);
} pto_transport_api;

PTO_ABI_ASSERT(sizeof(pto_transport_api) == 16 + 12 * sizeof(void*), "pto_transport_api");

/* Returns NULL if the library has no transport of that name. */
typedef const pto_transport_api* (*pto_transport_entry_fn)(const char* name);
#define PTO_TRANSPORT_ENTRY "pto_transport_entry"

#endif
