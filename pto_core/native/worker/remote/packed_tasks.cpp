#include "remote/packed_tasks.hpp"

#include <cstring>

namespace pto::worker {

bool has_no_tensors(std::string_view arguments) {
  int32_t tensors = 0;
  if (arguments.size() >= sizeof tensors) std::memcpy(&tensors, arguments.data(), sizeof tensors);
  return tensors == 0;
}

void pack_task(const pto_frame& frame, std::string_view arguments, std::string& packed) {
  TaskHead head{};
  head.task = frame.number;
  head.config = frame.config;
  head.bytes = frame.bytes;
  std::memcpy(head.callable, frame.callable, sizeof head.callable);
  head.flags = frame.flags;
  packed.append(reinterpret_cast<const char*>(&head), sizeof head);
  packed.append(arguments);
}

bool read_task(std::string_view packed, PackedTask& task) {
  if (packed.size() < sizeof task.head) return false;
  std::memcpy(&task.head, packed.data(), sizeof task.head);
  task.arguments = packed.data() + sizeof task.head;
  task.size = sizeof task.head + task.head.bytes;
  return task.size <= packed.size();
}

PlainTasks plain_tasks(std::string_view packed, uint64_t number, uint64_t limit) {
  PlainTasks found;
  PackedTask task;
  while (found.count < limit && read_task(packed.substr(found.size), task)) {
    const bool is_plain = task.head.pieces == 0 && task.head.required < number + found.count &&
                          has_no_tensors({task.arguments, task.head.bytes});
    if (!is_plain) break;
    found.count += 1;
    found.size += task.size;
  }
  return found;
}

}  // namespace pto::worker
