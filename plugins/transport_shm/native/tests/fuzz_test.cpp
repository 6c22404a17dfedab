// Corrupt the shared memory at random. Each call must return a count, CLOSED, or PROTOCOL with an
// error text. It must return no pointer outside the connection. The test reads through each
// pointer, so that a sanitizer finds a wrong one.

#include <algorithm>

#include "connection.hpp"
#include "random.hpp"

namespace {

constexpr int kViews = 100;

struct Range {
  const uint8_t* begin;
  uint64_t bytes;

  bool holds(const void* data, uint64_t length) const {
    const auto* first = static_cast<const uint8_t*>(data);
    return first >= begin && length <= bytes && first <= begin + bytes - length;
  }
};

uint64_t touched(const void* data, uint64_t bytes) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < bytes; ++i) sum += static_cast<const uint8_t*>(data)[i];
  return sum;
}

class Victim {
 public:
  Victim(Random& random, uint32_t queue_frames, uint32_t queue_bytes)
      : random_(random),
        connection_(queue_frames, queue_bytes),
        range_{connection_.memory(), connection_.values().memory_bytes} {}

  void run(int calls) {
    for (int i = 0; i < calls; ++i) {
      if (random_.one_in(4)) spoil();
      step();
    }
    check_that_errors_stay();
  }

  uint64_t protocol_errors() const { return parent_broke_ + child_broke_; }

 private:
  void spoil() {
    uint8_t* memory = connection_.memory();
    const uint64_t size = range_.bytes;
    switch (random_.below(5)) {
      case 0:  // write any byte at any position
        for (uint64_t n = random_.below(200); n > 0; --n)
          memory[random_.below(size)] = random_.byte();
        break;
      case 1:  // set an index to any value
        set_word(random_.below(1024) / 8 * 8, random_.next());
        break;
      case 2:  // change an index by a small amount, so that it is almost valid
        add_word(random_.below(1024) / 8 * 8, 64 * (random_.below(40) - 20));
        break;
      case 3:  // write a head at the start of a line
        for (uint64_t at = random_.below(size / 64) * 64, i = 0; i < 64; ++i)
          memory[at + i] = random_.one_in(3) ? random_.byte() : 0xFF;
        break;
      default:  // change the length and kind in a head
        for (int n = 0; n < 8; ++n) {
          const uint64_t at = 4096 + random_.below((size - 4096) / 64) * 64;
          std::memcpy(memory + at + 56, kLengths + random_.below(std::size(kLengths)), 4);
          if (random_.one_in(2)) memory[at + 60] = memory[at + 61] = 0xFF;
        }
    }
  }

  void set_word(uint64_t at, uint64_t value) { std::memcpy(connection_.memory() + at, &value, 8); }

  void add_word(uint64_t at, uint64_t value) {
    uint64_t old;
    std::memcpy(&old, connection_.memory() + at, 8);
    set_word(at, old + value);
  }

  void step() {
    switch (random_.below(5)) {
      case 0:
        note(submit_one(), parent_broke_, shm().parent_error(connection_.parent()), 1);
        break;
      case 1:
        receive();
        break;
      case 2:
        shm().take(connection_.child(), static_cast<int32_t>(random_.below(20)));
        break;
      case 3:
        note(answer_one(), child_broke_, shm().child_error(connection_.child()), 1);
        break;
      default:
        poll();
    }
  }

  int32_t submit_one() {
    const uint32_t limit = connection_.values().queue_bytes;
    return submit(connection_, task(++sent_, random_.below(limit)));
  }

  int32_t answer_one() {
    static const uint8_t data[4096] = {};
    const auto outcome = static_cast<uint16_t>(random_.below(3));
    ++answered_;
    return give(connection_, {answered_, data, static_cast<uint32_t>(random_.below(64) * outcome),
                              static_cast<uint16_t>(random_.below(2)), outcome});
  }

  void receive() {
    pto_frame_view views[kViews];
    const int32_t count = shm().receive(connection_.child(), views, 1 + random_.below(kViews));
    note(count, child_broke_, shm().child_error(connection_.child()), kViews);
    for (int32_t i = 0; i < count; ++i) {
      const uint64_t bytes = views[i].frame->bytes;
      CHECK(views[i].frame->kind <= PTO_FRAME_CONTROL);
      CHECK(bytes == 0 || range_.holds(views[i].data, bytes));
      sum_ += touched(views[i].data, bytes);
    }
  }

  void poll() {
    pto_answer answers[kViews];
    const int32_t count = shm().poll(connection_.parent(), answers, 1 + random_.below(kViews));
    note(count, parent_broke_, shm().parent_error(connection_.parent()), kViews);
    for (int32_t i = 0; i < count; ++i) {
      CHECK(answers[i].kind <= PTO_ANSWER_REPLY && answers[i].outcome <= PTO_OUTCOME_SKIPPED);
      if (answers[i].kind == PTO_ANSWER_COMPLETED) {
        CHECK(answers[i].number > reported_ && answers[i].number <= sent_);
        reported_ = answers[i].number;
      }
      CHECK(answers[i].bytes == 0 || range_.holds(answers[i].data, answers[i].bytes));
      sum_ += touched(answers[i].data, answers[i].bytes);
    }
  }

  void note(int32_t result, uint64_t& broke, const char* message, int32_t most) {
    CHECK(result >= PTO_ENDPOINT_PROTOCOL && result <= most);
    if (result != PTO_ENDPOINT_PROTOCOL) return;
    CHECK(std::strlen(message) > 10);
    ++broke;
  }

  void check_that_errors_stay() {
    // A broken end stays broken, even if the memory is then made valid again.
    if (!is_broken_parent()) return;
    std::memset(connection_.memory(), 0, range_.bytes);
    CHECK(is_broken_parent());
    CHECK_EQUAL(submit_one(), PTO_ENDPOINT_PROTOCOL);
  }

  bool is_broken_parent() {
    pto_answer answers[kViews];
    int32_t count = 1;
    for (int i = 0; i < 4 && count >= 0; ++i)
      count = shm().poll(connection_.parent(), answers, kViews);
    return count == PTO_ENDPOINT_PROTOCOL;
  }

  static constexpr uint32_t kLengths[] = {0,    1,    63,         64,         65,
                                          4095, 4096, 0x7FFFFFFF, 0xFFFFFFC0, 0xFFFFFFFF};
  Random& random_;
  Connection connection_;
  const Range range_;
  uint64_t sent_ = 0;
  uint64_t answered_ = 0;
  uint64_t reported_ = 0;
  uint64_t parent_broke_ = 0;
  uint64_t child_broke_ = 0;
  uint64_t sum_ = 0;
};

// Invariant: An index of a mailbox has one writer, covers only bytes written before it, and never
// decreases. It is checked before use, and an end that found it invalid stays broken.
TEST(random_bytes_only_ever_are_a_protocol_error) {
  Random random(chosen_seed());
  uint64_t errors = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    Victim victim(random, 1 + static_cast<uint32_t>(random.below(16)),
                  64 + static_cast<uint32_t>(random.below(2000)));
    victim.run(60);
    errors += victim.protocol_errors();
  }
  CHECK(errors > 1000);  // number of corruptions that the checks detected
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
