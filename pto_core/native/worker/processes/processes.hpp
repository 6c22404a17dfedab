#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace pto::worker {

// The signal handling of a process that forks.
//
// Block every signal of this thread. Return the value for restore_signals().
std::string block_signals();
void restore_signals(const std::string& saved);

// Reset the signal handlers that a forked child has inherited. Signals with a handler get their
// default action, and ignored signals stay ignored. Crash handlers are kept, because they report
// crashes.
void reset_signals();

// Ends this process as soon as its parent has exited, whatever this process is doing.
//
// Start a thread that sleeps until the process of the pidfd `parent` has ended, and then ends this
// process with SIGKILL. It also detects a parent that died earlier. Call this once, at the start of
// a child. The descriptor stays open as long as the process lives. Throws std::system_error.
//
// PR_SET_PDEATHSIG is not suitable: it sends its signal when the thread that forked ends, not when
// its process ends.
void watch_parent(int parent);

// Memory that a process shares with its children: one unnamed file, mapped once.
//
// Pages are allocated when they are first written, and freed by zero(). The file has no name, so it
// does not outlive its processes, unless a path is given. Forked children have the mapping at the
// same address; a spawned child attaches it there, or fails. The mapping lives until its owner
// destroys it. A forked process never unmaps or zeroes an inherited mapping.
//
// Any thread may read the mapping. Only one thread at a time may change it.
class SharedMapping {
 public:
  // Create a mapping, rounded up to whole pages. Its address is chosen so that it is probably free
  // in other programs too, because spawned processes must attach the mapping there. With a path,
  // the mapping is a new file with this name, which replaces an existing one and outlives its
  // processes. Throws std::system_error.
  explicit SharedMapping(uint64_t bytes, const std::string& path = {});
  // Map `descriptor` exactly at `address`; the caller still owns the descriptor. Throws
  // std::system_error, with EEXIST if the address is in use.
  SharedMapping(int descriptor, uint64_t bytes, uint64_t address);
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  uint64_t bytes() const { return bytes_; }
  // Return the descriptor; -1 if the mapping was attached.
  int descriptor() const { return descriptor_; }
  bool is_owner() const;

  // Return the number of bytes that are allocated because any process has written to them.
  uint64_t resident_bytes() const;
  // Zero a range, and free the memory of its whole pages. Only the owner may call it.
  void zero(uint64_t offset, uint64_t bytes);

  // Return whether the caller may leave one unused range with its pages and its content. Then
  // return false until release_kept(). The caller holds the GIL.
  bool try_keep() { return !std::exchange(has_kept_, true); }
  void release_kept() { has_kept_ = false; }

 private:
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
  int descriptor_ = -1;
  int owner_ = 0;  // the process that created the mapping
  bool has_kept_ = false;
};

// A range of reserved addresses without memory. No other mapping of the process uses them, and each
// access is a fault.
class AddressReservation {
 public:
  // Reserve whole pages at an address that is free in other programs too, as for SharedMapping.
  // Throws std::system_error.
  explicit AddressReservation(uint64_t bytes);
  ~AddressReservation();
  AddressReservation(const AddressReservation&) = delete;
  AddressReservation& operator=(const AddressReservation&) = delete;

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }
  uint64_t bytes() const { return bytes_; }

 private:
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

// Limits the thread pools of libraries that are already loaded, in a child.
//
// Only one thread at a time may use it.
//
// The families of libraries whose thread pools are limited.
struct ThreadPools {
  bool openmp;
  bool openblas;
  bool mkl;
  bool blis;
};

// Find the loaded libraries with thread pools. Does nothing if no library was loaded since the last
// search. Called in the parent, so that children need not search.
void find_thread_pools();

// Set the number of threads of each loaded library in `pools`, like the library's environment
// variable does at loading. Return the number of libraries that were changed.
int limit_thread_pools(const ThreadPools& pools, int threads);

}  // namespace pto::worker
