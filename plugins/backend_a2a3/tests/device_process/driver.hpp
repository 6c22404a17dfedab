// A driver of the device process for C++ tests: starts it, owns device memory, sends requests.
//
// Device memory is mapped twice: at its address without any permission, so that a test that
// dereferences a device address crashes, and elsewhere for copies. A call that fails ends the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device_process/protocol.h"

class Silicon {
 public:
  static constexpr uint64_t kMemory = 0x7e9000000000;
  static constexpr uint64_t kBytes = uint64_t{1} << 30;

  // `settings` are the arguments of the device process after the descriptor.
  explicit Silicon(const std::vector<std::string>& settings);
  ~Silicon();
  Silicon(const Silicon&) = delete;
  Silicon& operator=(const Silicon&) = delete;

  // Device memory, aligned to 64 bytes but not to 1024. It is filled with a pattern and not freed.
  uint64_t allocate(uint64_t bytes);
  void copy_in(uint64_t address, const void* from, uint64_t bytes);
  void copy_out(void* to, uint64_t address, uint64_t bytes) const;
  template <class Value>
  uint64_t upload(const Value& value) {
    const uint64_t address = allocate(sizeof value);
    copy_in(address, &value, sizeof value);
    return address;
  }
  uint64_t upload_file(const std::string& path, uint64_t& bytes);

  silicon_info query();
  uint64_t load(const std::string& path) { return load(SILICON_LOAD, path); }
  uint64_t load_code(const std::string& path) { return load(SILICON_CODE, path); }
  // Start a launch and return its tag.
  template <class Arguments>
  uint64_t launch(uint32_t kind, uint64_t handle, const std::string& symbol, uint32_t threads,
                  const Arguments& arguments) {
    return launch(kind, handle, symbol, threads, &arguments, sizeof arguments);
  }
  // Wait for the end of a launch: COMPLETED, or CRASHED, or kind 0 if the process has ended.
  silicon_answer wait(uint64_t tag);
  bool has_ended(uint64_t tag);

  // Wait for the end of the process; return its status as waitpid() does. end() first closes the
  // socket, so that the process ends by itself.
  int end();
  int wait_for_exit();
  void kill() const;
  pid_t pid() const { return process_; }

 private:
  silicon_answer request(silicon_request& request, int descriptor = -1);
  uint64_t load(uint32_t kind, const std::string& path);
  uint64_t launch(uint32_t kind, uint64_t handle, const std::string& symbol, uint32_t threads,
                  const void* arguments, uint64_t bytes);
  bool receive(void* answer, size_t bytes, int timeout_ms);
  char* alias(uint64_t address, uint64_t bytes) const;

  int socket_ = -1;
  pid_t process_ = -1;
  char* alias_ = nullptr;
  uint64_t used_ = 64;
  uint64_t tags_ = 0;
  std::map<uint64_t, silicon_answer> ended_;
};
