#include "endpoint/python_ends.hpp"

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "pto/engine/bell.hpp"

namespace nb = nanobind;

namespace python_ends {

// The head of an answer from Python: a pto_answer without its pointer; see interfaces/frame.py.
struct AnswerHead {
  uint64_t number;
  uint32_t bytes;
  uint16_t kind;
  uint16_t outcome;
};
static_assert(sizeof(AnswerHead) == 16);

// Thrown to end the use of an end: the permanent status, and its message.
struct Ended {
  int32_t status;
  std::string message;
};

[[noreturn]] void break_off(std::string message) {
  throw Ended{PTO_ENDPOINT_PROTOCOL, message};
}

Ended ended_by(nb::python_error& error) {
  const nb::object closed = nb::module_::import_("pto_core.errors").attr("EndpointClosedError");
  const int32_t status = error.matches(closed) ? PTO_ENDPOINT_CLOSED : PTO_ENDPOINT_PROTOCOL;
  auto message = nb::cast<std::string>(nb::str(error.type().attr("__name__")));
  message += ": ";
  message += nb::cast<std::string>(nb::str(error.value()));
  return {status, message};
}

nb::bytes joined(const void* head, size_t head_bytes, const void* data, size_t bytes) {
  PyObject* object =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(head_bytes + bytes));
  if (object == nullptr) nb::raise_python_error();
  char* place = PyBytes_AS_STRING(object);
  std::memcpy(place, head, head_bytes);
  if (bytes != 0) std::memcpy(place + head_bytes, data, bytes);
  return nb::steal<nb::bytes>(object);
}

// An end in Python, with the status and message of its failure.
class PythonEnd {
 public:
  PythonEnd(nb::object end, pto_bell* other_bell, uint32_t queue_bytes)
      : end_(std::move(end)), other_bell_(other_bell), queue_bytes_(queue_bytes) {}

  const char* error() const { return error_.c_str(); }

  // Run `call` with the GIL held, and return its result. If it fails, or has failed before, return
  // the status of the failure.
  template <class Call>
  int32_t run(Call call) {
    if (status_ != 0) return status_;
    const nb::gil_scoped_acquire hold;
    try {
      return call();
    } catch (nb::python_error& error) {
      return end_with(ended_by(error));
    } catch (const Ended& ended) {
      return end_with(ended);
    } catch (const std::exception& error) {
      return end_with({PTO_ENDPOINT_PROTOCOL, error.what()});
    }
  }

  // Drop exceptions, because no later call could report them.
  void close() {
    const nb::gil_scoped_acquire hold;
    try {
      end_.attr("close")();
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("close() of a transport's end");
    }
    end_.reset();
  }

 protected:
  // Fail one call because an item is too large. The end stays usable.
  int32_t refuse(const char* what, uint64_t bytes, uint64_t limit) {
    error_ = std::string(what) + " of " + std::to_string(bytes) +
             " bytes is too large; the limit is " + std::to_string(limit);
    return PTO_ENDPOINT_PROTOCOL;
  }

  // Call `method`, which returns a list of up to `limit` items.
  nb::list items_of(const char* method, int32_t limit) {
    nb::list got(end_.attr(method)(limit));
    if (got.size() > static_cast<size_t>(limit))
      break_off(std::string(method) + "() returned too many items");
    return got;
  }

  // Return a received item as bytes. Break off if it is shorter than its head or larger than the
  // limit.
  nb::bytes whole(nb::handle item, size_t head_bytes, const char* what) const {
    if (!nb::isinstance<nb::bytes>(item)) break_off(std::string(what) + " is not a bytes object");
    nb::bytes packed = nb::borrow<nb::bytes>(item);
    const size_t most = queue_bytes_ - sizeof(pto_frame) + head_bytes;
    if (packed.size() < head_bytes || packed.size() > most)
      break_off(std::string(what) + " of " + std::to_string(packed.size()) + " bytes arrived");
    return packed;
  }

  nb::object end_;
  pto_bell* const other_bell_;
  const uint32_t queue_bytes_;
  int32_t status_ = 0;
  std::string error_;

 private:
  int32_t end_with(const Ended& ended) {
    error_ = ended.message;
    if (ended.status == PTO_ENDPOINT_PROTOCOL) status_ = ended.status;
    return ended.status;
  }
};

class PythonParent : public PythonEnd {
 public:
  using PythonEnd::PythonEnd;

  int32_t submit(const pto_frame_view* frames, int32_t count) {
    if (count <= 0) return 0;
    const uint64_t first = sizeof(pto_frame) + uint64_t{frames[0].frame->bytes};
    if (first > queue_bytes_) return refuse("a frame", first, queue_bytes_);
    nb::list packed;
    for (int32_t i = 0; i < count; ++i) {
      const pto_frame& frame = *frames[i].frame;
      if (sizeof frame + uint64_t{frame.bytes} > queue_bytes_) break;
      packed.append(joined(&frame, sizeof frame, frames[i].data, frame.bytes));
    }
    const auto taken = nb::cast<int64_t>(end_.attr("submit")(packed));
    if (taken < 0 || taken > static_cast<int64_t>(packed.size()))
      break_off("submit() returned an impossible number: " + std::to_string(taken));
    if (taken > 0) pto::engine::ring(other_bell_);
    return static_cast<int32_t>(taken);
  }

  int32_t poll(pto_answer* answers, int32_t count) {
    answers_.clear();
    if (count <= 0) return 0;
    for (nb::handle item : items_of("poll", count)) {
      AnswerHead head;
      nb::bytes packed = whole(item, sizeof head, "an answer");
      std::memcpy(&head, packed.c_str(), sizeof head);
      if (head.bytes != packed.size() - sizeof head || head.kind > PTO_ANSWER_REPLY ||
          head.outcome > PTO_OUTCOME_SKIPPED)
        break_off("an answer has an invalid head");
      const void* data = head.bytes == 0 ? nullptr : packed.c_str() + sizeof head;
      answers[answers_.size()] = {head.number, data, head.bytes, head.kind, head.outcome};
      answers_.push_back(std::move(packed));
    }
    return static_cast<int32_t>(answers_.size());
  }

  void forget() { answers_.clear(); }

 private:
  std::vector<nb::bytes> answers_;  // the last polled answers
};

class PythonChild : public PythonEnd {
 public:
  using PythonEnd::PythonEnd;

  // Frames that were received but not taken are returned first, even if the end is closed.
  int32_t receive(pto_frame_view* frames, int32_t count) {
    const size_t wanted = count < 0 ? 0 : static_cast<size_t>(count);
    if (held_.size() < wanted) {
      const int32_t missing = static_cast<int32_t>(wanted - held_.size());
      const int32_t status = run([&] { return fetch(missing); });
      if (status < 0 && held_.empty()) return status;
    }
    const size_t shown = held_.size() < wanted ? held_.size() : wanted;
    for (size_t i = 0; i < shown; ++i) {
      const char* packed = held_[i].c_str();
      frames[i] = {reinterpret_cast<const pto_frame*>(packed), packed + sizeof(pto_frame)};
    }
    return static_cast<int32_t>(shown);
  }

  void take(int32_t count) {
    const nb::gil_scoped_acquire hold;
    for (; count > 0 && !held_.empty(); --count) held_.pop_front();
  }

  int32_t answer(const pto_answer& answer) {
    const uint64_t limit = queue_bytes_ - sizeof(pto_frame);
    if (answer.bytes > limit) return refuse("an answer", answer.bytes, limit);
    const AnswerHead head{answer.number, answer.bytes, answer.kind, answer.outcome};
    const nb::object given =
        end_.attr("answer")(joined(&head, sizeof head, answer.data, answer.bytes));
    if (!nb::cast<bool>(given)) return 0;
    pto::engine::ring(other_bell_);
    return 1;
  }

  void forget() { held_.clear(); }

 private:
  int32_t fetch(int32_t limit) {
    for (nb::handle item : items_of("receive", limit)) {
      nb::bytes packed = whole(item, sizeof(pto_frame), "a frame");
      pto_frame head;
      std::memcpy(&head, packed.c_str(), sizeof head);
      if (head.bytes != packed.size() - sizeof head || head.kind > PTO_FRAME_CONTROL)
        break_off("a frame has an invalid head");
      held_.push_back(std::move(packed));
    }
    return 0;
  }

  std::deque<nb::bytes> held_;  // received, but not yet taken
};

}  // namespace python_ends

struct pto_parent_end {
  python_ends::PythonParent end;
};
struct pto_child_end {
  python_ends::PythonChild end;
};

namespace {

int32_t submit(pto_parent_end* parent, const pto_frame_view* frames, int32_t count) {
  return parent->end.run([&] { return parent->end.submit(frames, count); });
}

int32_t poll(pto_parent_end* parent, pto_answer* answers, int32_t count) {
  return parent->end.run([&] { return parent->end.poll(answers, count); });
}

int32_t receive(pto_child_end* child, pto_frame_view* frames, int32_t count) {
  return child->end.receive(frames, count);
}

void take(pto_child_end* child, int32_t count) {
  child->end.take(count);
}

int32_t answer(pto_child_end* child, const pto_answer* answer) {
  return child->end.run([&] { return child->end.answer(*answer); });
}

template <class Opened>
const char* error(const Opened* opened) {
  return opened->end.error();
}

template <class Opened>
void close(Opened* opened) {
  const nb::gil_scoped_acquire hold;
  opened->end.forget();
  opened->end.close();
  delete opened;
}

constexpr pto_transport_api kApi = {
    PTO_ABI_VERSION,
    PTO_TRANSPORT_IN_ORDER,
    "python",
    nullptr,
    nullptr,
    submit,
    poll,
    error<pto_parent_end>,
    close<pto_parent_end>,
    nullptr,
    receive,
    take,
    answer,
    error<pto_child_end>,
    close<pto_child_end>,
};

}  // namespace

namespace pto::worker {

const pto_transport_api& python_transport() {
  return kApi;
}

pto_parent_end* open_python_parent(nb::object end, pto_bell* child_bell, uint32_t queue_bytes) {
  return new pto_parent_end{{std::move(end), child_bell, queue_bytes}};
}

pto_child_end* open_python_child(nb::object end, pto_bell* parent_bell, uint32_t queue_bytes) {
  return new pto_child_end{{std::move(end), parent_bell, queue_bytes}};
}

}  // namespace pto::worker
