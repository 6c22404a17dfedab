// Tests of packed tasks: plain tasks are found and counted, and bytes from another host are never
// read past their end.
#include "remote/packed_tasks.hpp"

#include <cstring>
#include <memory>
#include <random>

#include "check.hpp"

namespace {

using namespace pto::worker;

std::string arguments(int32_t tensors, size_t size = 16) {
  std::string blob(size, '\0');
  std::memcpy(blob.data(), &tensors, sizeof tensors);
  return blob;
}

std::string packed_task(uint64_t number, const std::string& blob, uint64_t required = 0,
                        uint16_t pieces = 0) {
  pto_frame frame{};
  frame.number = number;
  frame.config = 3;
  frame.flags = PTO_FRAME_HAS_ARGUMENTS;
  frame.bytes = static_cast<uint32_t>(blob.size());
  std::memset(frame.callable, 7, sizeof frame.callable);
  std::string packed;
  pack_task(frame, blob, packed);
  std::memcpy(packed.data() + offsetof(TaskHead, required), &required, sizeof required);
  std::memcpy(packed.data() + offsetof(TaskHead, pieces), &pieces, sizeof pieces);
  return packed;
}

TEST(a_packed_task_is_unpacked) {
  const std::string blob = arguments(0, 24);
  const std::string packed = packed_task(9, blob);
  PackedTask task;
  CHECK(read_task(packed, task));
  CHECK_EQUAL(task.head.task, 9u);
  CHECK_EQUAL(task.head.config, 3u);
  CHECK_EQUAL(task.head.flags, PTO_FRAME_HAS_ARGUMENTS);
  CHECK_EQUAL(task.head.callable[31], 7);
  CHECK_EQUAL(task.size, packed.size());
  CHECK(std::string(task.arguments, task.head.bytes) == blob);
}

TEST(plain_tasks_end_at_a_task_with_memory_or_a_wrong_requirement) {
  const std::string two = packed_task(1, "") + packed_task(2, arguments(0));
  for (const std::string& last :
       {packed_task(3, arguments(1)), packed_task(3, "", 0, 1), packed_task(3, "", 12)}) {
    const PlainTasks found = plain_tasks(two + last + packed_task(4, ""), 10, 100);
    CHECK_EQUAL(found.count, 2u);
    CHECK_EQUAL(found.size, two.size());
  }
  CHECK_EQUAL(plain_tasks(two + packed_task(3, "", 11), 10, 100).count, 3u);
  CHECK_EQUAL(plain_tasks(two, 10, 1).count, 1u);
  CHECK_EQUAL(plain_tasks(two, 0, 100).count, 0u);  // numbers start at 1
}

// Each input has its own allocation, so that AddressSanitizer reports a read past its end.
TEST(random_and_truncated_bytes_are_read_only_within_their_length) {
  const std::string whole = packed_task(1, arguments(0)) + packed_task(2, "");
  std::minstd_rand random(1);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::unique_ptr<char[]> bytes(new char[size]);
    std::memcpy(bytes.get(), whole.data(), size);
    const uint64_t count = plain_tasks({bytes.get(), size}, 1, 100).count;
    CHECK_EQUAL(count, uint64_t{size >= 80} + uint64_t{size == whole.size()});
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(random());
    CHECK(plain_tasks({bytes.get(), size}, 1, 100).size <= size);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
