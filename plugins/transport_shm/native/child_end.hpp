// The child's end of a mailbox. It receives frames and sends answers. Only one thread at a time may
// call it.
#pragma once

#include "error_text.hpp"
#include "layout.hpp"
#include "reader.hpp"
#include "writer.hpp"

namespace pto::shm {

class ChildEnd {
 public:
  explicit ChildEnd(const pto_connection& connection);

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

}  // namespace pto::shm
