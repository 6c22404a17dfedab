// The parent's end: frames in, answers out. One thread at a time.
#pragma once

#include "layout.hpp"
#include "reader.hpp"
#include "words.hpp"
#include "writer.hpp"

namespace pto::shm {

class ParentEnd {
 public:
  explicit ParentEnd(const pto_connection& connection);

  int32_t submit(const pto_frame_view* frames, int32_t count);
  int32_t poll(pto_answer* answers, int32_t count);
  void close();
  const char* error() const { return words_.text(); }

 private:
  bool can_be_sent(const pto_frame& frame);
  int32_t put(const pto_frame_view* frames, int32_t count);
  void ask_for_room(bool wanted);
  void free_told();
  bool look();
  bool tell_records(pto_answer* answers, int32_t count, int32_t& given);
  bool can_be(const Record& record);
  void tell(const Reader<Record>::Item& item, pto_answer& answer);
  void tell_successes(uint64_t number, pto_answer& answer);

  const pto_connection connection_;
  Indices* const indices_;

  Writer<pto_frame> frames_;
  uint64_t submitted_tasks_ = 0;
  uint64_t published_ = 0;  // of frames_
  bool wants_room_ = false;

  Reader<Record> answers_;
  uint64_t told_ = 0;        // task frames whose end the caller knows
  uint64_t told_index_ = 0;  // records before it were told, and are read until the next poll
  uint64_t completed_ = 0;   // the child's number, as last looked at
  // A record that was read but not told: there was room for the successes before it only.
  Reader<Record>::Item waiting_{};
  bool has_waiting_ = false;

  Words words_;
};

}  // namespace pto::shm
