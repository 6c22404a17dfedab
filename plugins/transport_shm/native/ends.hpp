// Both ends of a mailbox. Only one thread at a time may call an end.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "ring.hpp"

namespace pto::shm {

// The error text of one end of a connection. The first error that breaks the end is kept.
class ErrorText {
 public:
  // Record an error in the data that the other side wrote. The end stays broken.
  [[gnu::format(printf, 2, 3)]] void set_broken(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!is_broken_) std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    is_broken_ = true;
  }

  // Record an error in the arguments of one call. The end stays usable.
  [[gnu::format(printf, 2, 3)]] void set_refused(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
  }

  bool is_broken() const { return is_broken_; }
  const char* text() const { return text_; }

 private:
  char text_[200] = "";
  bool is_broken_ = false;
};

// The child's end of a mailbox. It receives frames and sends answers.
class RingChildEnd {
 public:
  explicit RingChildEnd(const pto_connection& connection);

  int32_t receive(pto_frame_view* frames, int32_t count);
  void take(int32_t count);
  int32_t answer(const pto_answer& answer);
  void close();
  const char* error() const { return error_.text(); }

 private:
  using Item = Reader<pto_frame>::Item;
  // The maximum number of frames that are visible at once: receive() returns no more before take().
  static constexpr uint32_t kVisible = 64;
  static_assert((kVisible & (kVisible - 1)) == 0);

  bool read_next();
  int32_t put(const pto_answer& answer);
  void request_space(bool wanted);

  const pto_connection connection_;
  Indices* const indices_;

  Reader<pto_frame> frames_;
  Item visible_[kVisible];
  // number of frames taken so far; modulo kVisible, the index in visible_ of the next frame
  uint32_t first_ = 0;
  uint32_t past_last_ = 0;  // number of frames read so far, with the same meaning

  Writer<Record> answers_;
  uint64_t succeeded_ = 0;  // the published value of `completed`
  uint64_t answered_ = 0;   // number of the last task frame that was answered
  bool wants_space_ = false;

  ErrorText error_;
};

// The parent's end of a mailbox. It sends frames and polls answers.
class RingParentEnd {
 public:
  explicit RingParentEnd(const pto_connection& connection);

  int32_t submit(const pto_frame_view* frames, int32_t count);
  int32_t poll(pto_answer* answers, int32_t count);
  void close();
  const char* error() const { return error_.text(); }

 private:
  bool is_sendable(const pto_frame& frame);
  int32_t put(const pto_frame_view* frames, int32_t count);
  void request_space(bool wanted);
  void free_reported();
  bool refresh();
  bool report_records(pto_answer* answers, int32_t count, int32_t& reported);
  bool is_valid(const Record& record);
  void report(const Reader<Record>::Item& item, pto_answer& answer);
  void report_successes(uint64_t number, pto_answer& answer);

  const pto_connection connection_;
  Indices* const indices_;

  Writer<pto_frame> frames_;
  uint64_t submitted_tasks_ = 0;
  uint64_t published_ = 0;  // the index that was last published as `submitted`
  bool wants_space_ = false;

  Reader<Record> answers_;
  uint64_t reported_ = 0;  // number of the last task frame that was reported to the caller
  // the end of the records that were reported; the caller may read them until the next poll
  uint64_t reported_index_ = 0;
  uint64_t completed_ = 0;  // the value of `completed` at the last refresh()
  // A record that was read but not reported, because the successes before it filled the array of
  // the caller.
  Reader<Record>::Item waiting_{};
  bool has_waiting_ = false;

  ErrorText error_;
};

}  // namespace pto::shm
