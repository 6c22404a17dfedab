// The parent's end of a mailbox. It sends frames and polls answers. Only one thread at a time may
// call it.
#pragma once

#include "error_text.hpp"
#include "layout.hpp"
#include "reader.hpp"
#include "writer.hpp"

namespace pto::shm {

class ParentEnd {
 public:
  explicit ParentEnd(const pto_connection& connection);

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
