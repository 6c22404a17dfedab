// Files of libraries on the AICPU.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>

namespace pto::a2a3 {

inline bool write_all(int file, const char* bytes, uint64_t count) {
  while (count > 0) {
    const ssize_t written = write(file, bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    count -= static_cast<uint64_t>(written);
  }
  return true;
}

// Writes a new file that only its owner can change. Returns 0, or errno; then there is no file.
inline int write_file(const char* path, const char* bytes, uint64_t count) {
  const int file = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755);
  if (file < 0) return errno;
  const bool is_whole = write_all(file, bytes, count);
  const int reason = is_whole ? 0 : errno;
  close(file);
  if (!is_whole) unlink(path);
  return is_whole || reason != 0 ? reason : ENOSPC;
}

}  // namespace pto::a2a3
