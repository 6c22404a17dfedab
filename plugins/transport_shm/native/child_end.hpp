// The child's end: frames out, answers in. One thread at a time.
#pragma once

#include "layout.hpp"
#include "reader.hpp"
#include "words.hpp"
#include "writer.hpp"

namespace pto::shm {

class ChildEnd {
 public:
  explicit ChildEnd(const pto_connection& connection);

  int32_t receive(pto_frame_view* frames, int32_t count);
  void take(int32_t count);
  int32_t answer(const pto_answer& answer);
  void close();
  const char* error() const { return words_.text(); }

 private:
  using Item = Reader<pto_frame>::Item;
  // Frames that are shown at once.
  static constexpr uint32_t kShown = 64;
  static_assert((kShown & (kShown - 1)) == 0);

  bool show_more();
  int32_t put(const pto_answer& answer);
  void ask_for_room(bool wanted);

  const pto_connection connection_;
  Indices* const indices_;

  Reader<pto_frame> frames_;
  Item shown_[kShown];
  uint32_t first_ = 0;   // counts; its place in shown_ is the rest modulo kShown
  uint32_t behind_ = 0;  // likewise

  Writer<Record> answers_;
  uint64_t succeeded_ = 0;  // what was published as `completed`
  uint64_t ended_ = 0;      // the last task frame that was answered
  bool wants_room_ = false;

  Words words_;
};

}  // namespace pto::shm
