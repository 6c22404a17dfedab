// The device process of one fake device. ../device_process/protocol.h describes its messages.
//
// A thread of its own receives the answers. Any thread may call load() and launch(); the owner
// alone calls end(). No call needs the mutex of the driver.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "answers.hpp"
#include "device_process/protocol.h"
#include "memory.hpp"
#include "settings.hpp"

namespace pto::fake {

class ChipProcess {
 public:
  // Starts the program that the settings name. Aborts if it does not start.
  ChipProcess(const Settings& settings, const Memory& memory);
  // Closes the socket, and waits until the process has ended by itself.
  ~ChipProcess();
  ChipProcess(const ChipProcess&) = delete;
  ChipProcess& operator=(const ChipProcess&) = delete;

  const silicon_info& info() const { return info_; }

  // Loads bytes of device memory as SILICON_LOAD or SILICON_CODE. Returns 0 if the chip refuses.
  uint64_t load(uint32_t kind, uint64_t address, uint64_t bytes);
  // Runs `request` to its end, or until `stop` is set. Returns a vendor's code.
  Code launch(silicon_request& request, const std::atomic<int>& stop);

  // The handle of the library that was loaded from a file of the device; 0: none.
  uint64_t library(const std::string& file) const;
  void keep_library(const std::string& file, uint64_t handle);

  // Ends the process at once. Launches that run end with it.
  void kill();

 private:
  bool start(const Settings& settings);
  bool introduce(const Memory& memory);
  bool send(const silicon_request& request, int descriptor) const;
  silicon_answer ask(silicon_request& request);
  void receive();
  void wait_for_exit();
  Code code_of(uint64_t tag, bool is_core) const;

  int socket_ = -1;
  pid_t process_ = -1;
  silicon_info info_{};
  std::thread receiver_;

  mutable std::mutex mutex_;  // of all members below
  std::condition_variable changed_;
  uint64_t tags_ = 0;
  std::map<uint64_t, silicon_answer> replies_;  // to requests
  std::map<uint64_t, silicon_answer> ends_;     // of launches
  std::map<std::string, uint64_t> libraries_;
  bool has_crashed_ = false;
  bool is_gone_ = true;
};

}  // namespace pto::fake
