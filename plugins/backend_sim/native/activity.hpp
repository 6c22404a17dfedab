// The activity page of pto/abi/activity.h, which lists running kernels, and the report of a crash.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "pto/abi/activity.h"
#include "pto/abi/payload.h"
#include "pto/abi/status.h"

namespace pto::sim {

class ActivityPage {
 public:
  ActivityPage() = default;
  ActivityPage(const ActivityPage&) = delete;
  ActivityPage& operator=(const ActivityPage&) = delete;
  ~ActivityPage();

  // Maps the page from the file descriptor `file`. If `file` < 0, the page is an unnamed file that
  // other processes of the user can read, or memory of this process if there can be none.
  pto_status open(int file, int32_t device, uint32_t slots, pto_error* error);

  // Stores the name of the attached runtime, and its capabilities, which a reader of the page needs
  // to print task ids.
  void set_runtime(const char* variant, uint32_t capabilities) const noexcept;
  // Stores the number of blocks of a run, by which a reader names the cores.
  void set_blocks(uint32_t blocks) const noexcept;
  // Stores the name of a loaded kernel if there is space, or removes it.
  void add_kernel(uint64_t kernel, const char* name) const noexcept;
  void remove_kernel(uint64_t kernel) const noexcept;

  pto_activity_page* page() const noexcept { return page_; }
  // Whether the parent process passed the page; it then reports a crash.
  bool is_shared() const noexcept { return is_shared_; }
  pto_activity_slot& slot(uint32_t index) const noexcept { return page_->slot[index]; }

 private:
  pto_activity_page* page_ = nullptr;
  int file_ = -1;  // the file of the page, open so that other processes find it
  bool is_shared_ = false;
};

// Stores a value that another process may read at the same time.
template <typename Integer>
void note(Integer& member, Integer value) noexcept {
  std::atomic_ref<Integer>(member).store(value, std::memory_order_relaxed);
}

// Call this only from the thread that owns the slot.
inline void note_kernel(pto_activity_slot& slot, const pto_payload& payload,
                        uint32_t core) noexcept {
  note(slot.task, payload.task);
  note(slot.func_id, payload.func_id);
  note(slot.core, static_cast<int32_t>(core));
  note(slot.kernel, payload.kernel);
  note(slot.sequence, slot.sequence + 1);
}

inline void note_return(pto_activity_slot& slot) noexcept {
  note(slot.sequence, slot.sequence + 1);
}

// Any thread may call this.
inline bool in_kernel(pto_activity_slot& slot) noexcept {
  return (std::atomic_ref(slot.sequence).load(std::memory_order_relaxed) & 1) != 0;
}

// The data that the handler reads about a thread that runs kernels. The object must live longer
// than its registration with set_crash_note().
struct CrashNote {
  const pto_activity_page* page = nullptr;
  pto_activity_slot* slot = nullptr;  // the slot of this thread in the activity page
  int32_t device = 0;
  // the number of blocks of the run: the cores with a lower number are AIC cores
  const uint32_t* blocks = nullptr;
  bool is_silent = false;  // whether another process reads the activity page and reports the crash
};

// Installs a handler that writes one line to standard error when a kernel or a C++ orchestration
// crashes the process, unless a parent process that reads the activity page reports the crash.
//
// When the handler returns, a fault occurs again in its original context, now without this handler.
// A signal that a process sent (si_code <= 0) does not occur again, so the handler sends it again.
void install_crash_handler();

// Sets the note that the handler reads if the calling thread crashes. Null removes the note.
void set_crash_note(const CrashNote* note) noexcept;
const CrashNote* crash_note() noexcept;

// Makes a thread that runs a kernel in its place leave it; see call_in_place().
void send_leave(pthread_t thread) noexcept;

// An alternate signal stack, with which the handler can run when the stack of the calling thread is
// exhausted. Destroy it on the thread that created it. A thread that already has an alternate stack
// keeps its own.
class AlternateStack {
 public:
  AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
  ~AlternateStack();

 private:
  void* memory_ = nullptr;
};

}  // namespace pto::sim
