// Whole runs in checking mode, and the crash report on standard error.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string>

#include "graphs.hpp"

namespace {

int32_t write_past_the_end(void*, const pto_payload* payload, uint32_t, pto_error*) {
  const uint64_t* args = reinterpret_cast<const uint64_t*>(payload + 1);
  reinterpret_cast<unsigned char*>(args[0])[args[1]] = 1;
  return 0;
}

int32_t raise_signal(void* context, const pto_payload*, uint32_t, pto_error*) {
  std::raise(*static_cast<int*>(context));
  return 0;
}

toy::Program one(int32_t func_id, std::vector<uint64_t> args) {
  return [=](toy::Runtime& runtime) {
    for (int i = 0; i < 3; ++i) runtime.submit(func_id, PTO_CORE_AIV, args);
    return 0;
  };
}

// Runs this program with other arguments. Returns its standard error; `status` receives its exit
// status. If `go` is set, the program also receives a descriptor, and its standard error is read
// only after it has written to that descriptor.
std::string output_of(std::vector<std::string> given, int& status, bool go = false) {
  int ends[2];
  int starts[2];
  CHECK_EQUAL(pipe(ends), 0);
  CHECK_EQUAL(pipe(starts), 0);
  if (go) given.push_back(std::to_string(starts[1]));
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    std::vector<char*> arguments = {const_cast<char*>("checking_test")};
    for (std::string& argument : given) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  close(ends[1]);
  close(starts[1]);
  std::string text;
  char buffer[4096];
  if (go) CHECK_EQUAL(read(starts[0], buffer, 1), 1);
  close(starts[0]);
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  return text;
}

int crash_here(const char* mode, int number, const char* activity_fd) {
  std::signal(number, SIG_DFL);  // remove the handler of a sanitizer
  std::vector<Fixture::Option> options = {{"mode", mode}, {"workers", "2"}};
  if (activity_fd != nullptr) options.push_back({"activity_fd", activity_fd});
  Fixture device(options);
  device.run(one(device.kernel(raise_signal, &number, "fragile"), {}));
  return 0;
}

// Crashes in two kernels. The report of the first one blocks, because the test does not read the
// output yet. Then the second one crashes.
int crash_twice(int go) {
  std::signal(SIGSEGV, SIG_DFL);
  static int go_file = go;
  static pto_activity_slot* slots;
  fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  while (write(STDERR_FILENO, " ", 1) == 1) {
  }
  fcntl(STDERR_FILENO, F_SETFL, 0);
  std::atomic<int> entered{0};
  const auto crash = [](void* context, const pto_payload*, uint32_t, pto_error*) -> int32_t {
    auto& count = *static_cast<std::atomic<int>*>(context);
    const bool is_first = count++ == 0;
    while (count < 2) {
    }
    const auto reported = [](pto_activity_slot& slot) {
      return std::atomic_ref(slot.signal).load(std::memory_order_relaxed) != 0;
    };
    while (!is_first && std::none_of(slots, slots + 2, reported)) sched_yield();
    if (!is_first) CHECK_EQUAL(write(go_file, "!", 1), 1);
    std::raise(SIGSEGV);
    return 0;
  };
  Fixture device({{"workers", "2"}});
  slots = const_cast<pto_activity_slot*>(device.api->activity(device.device)->slot);
  device.run(one(device.kernel(crash, &entered, "fragile"), {}));
  return 0;
}

int log_json_here() {
  Fixture device({{"log_format", "json"}, {"workers", "1"}});
  return device.run_from_here([](toy::Runtime& runtime) {
    const pto_platform& platform = runtime.platform();
    platform.log(platform.self, PTO_LOG_WARN, "a \"b\"\\\n\tc");
    platform.log(platform.self, PTO_LOG_ERROR, "5 \xC2\xB5s, cut \xE2\x82");
    return 0;
  });
}

int log_here(const char* level) {
  Fixture device({{"log_level", level}, {"workers", "1"}});
  return device.run_from_here([](toy::Runtime& runtime) {
    const pto_platform& platform = runtime.platform();
    for (int32_t least = PTO_LOG_ALWAYS; least <= PTO_LOG_DEBUG; ++least) {
      platform.log(platform.self, least, ("message " + std::to_string(least)).c_str());
    }
    return 0;
  });
}

}  // namespace

TEST(a_write_past_the_end_names_kernel_and_task) {
  for (const char* mode : {"threads", "deterministic"}) {
    Fixture device({{"mode", mode}, {"check", "1"}, {"workers", "1"}});
    uint64_t address = 0;
    CHECK_EQUAL(device.api->allocate(device.device, 100, &address, &device.error), PTO_OK);
    const int32_t func_id = device.kernel(write_past_the_end, nullptr, "greedy");
    CHECK_EQUAL(device.run(one(func_id, {address, 99})), PTO_OK);
    CHECK_EQUAL(device.run(one(func_id, {address, 100})), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(device.error.message, "kernel greedy (func_id 0), task ") != nullptr);
    CHECK(std::strstr(device.error.message, "byte 100") != nullptr);
    CHECK(device.error.task >= 0);
    CHECK_EQUAL(device.api->free(device.device, address, &device.error), PTO_ERROR_ADDRESS);
    CHECK_EQUAL(device.close().buffers, 0u);
  }
}

TEST(an_orchestration_cannot_copy_past_a_buffer_or_an_argument) {
  for (const char* check : {"0", "1"}) {
    Fixture device({{"workers", "1"}, {"check", check}});
    char argument[32] = {};
    device.ranges = {{reinterpret_cast<uint64_t>(argument), sizeof argument}};
    const auto copies = [&](size_t to_device, size_t from_device) {
      const toy::Program program = [&](toy::Runtime& runtime) {
        const pto_platform& platform = runtime.platform();
        uint64_t buffer = 0;
        std::vector<char> host(4096);
        CHECK_EQUAL(platform.allocate(platform.self, 64, &buffer), PTO_OK);
        pto_status status = platform.copy_in(platform.self, buffer, host.data(), to_device);
        if (status == PTO_OK) {
          status = platform.copy_out(platform.self, argument + 8, buffer, from_device);
        }
        if (status != PTO_OK) runtime.latch(status, "a copy failed");
        return 0;
      };
      return device.run(program);
    };
    CHECK_EQUAL(copies(64, 24), PTO_OK);
    CHECK_EQUAL(copies(4096, 24), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(device.error.message, "(cannot copy 4096 bytes to 0x") != nullptr);
    CHECK(std::strstr(device.error.message, "a buffer of 64 bytes") != nullptr);
    CHECK_EQUAL(copies(64, 25), PTO_ERROR_ADDRESS);
    CHECK(std::strstr(device.error.message, "copy at most 24)") != nullptr);
    CHECK_EQUAL(copies(64, 24), PTO_OK);
  }
}

TEST(messages_below_the_log_level_are_hidden) {
  const char* const names[] = {"error", "warn", "info", "debug"};
  for (int32_t shown = PTO_LOG_ERROR; shown <= PTO_LOG_DEBUG; ++shown) {
    int status = 0;
    const std::string text = output_of({"--log", names[shown]}, status);
    CHECK_EQUAL(status, 0);
    CHECK(text.find("pto: message -1\n") != std::string::npos);
    for (int32_t level = PTO_LOG_ALWAYS; level <= PTO_LOG_DEBUG; ++level) {
      const bool is_there = text.find("message " + std::to_string(level)) != std::string::npos;
      CHECK_EQUAL(is_there, level <= shown);
    }
  }
  const pto_option wrong{"log_level", "loud"};
  void* device = nullptr;
  pto_device_shape shape{};
  pto_error error{};
  CHECK_EQUAL(pto_backend_entry()->open(0, &wrong, 1, &device, &shape, &error), PTO_ERROR_USAGE);
  CHECK(std::strstr(error.message, "error, warn, info or debug") != nullptr);
}

TEST(messages_in_json_are_one_escaped_line_each) {
  int status = 0;
  const std::string text = output_of({"--log-json"}, status);
  CHECK_EQUAL(status, 0);
  const std::string head = "{\"event\": \"message\", \"logger\": \"runtime\", \"text\": ";
  CHECK(text.find(head + R"("a \"b\"\\\u000a\u0009c", "level": "warn", "timestamp": "2)") == 0);
  CHECK(text.find("\n" + head + "\"5 \xC2\xB5s, cut \\ufffd\\ufffd\", \"level\": \"error\"") !=
        std::string::npos);
  CHECK_EQUAL(std::count(text.begin(), text.end(), '\n'), 2);
  const pto_option wrong{"log_format", "xml"};
  void* device = nullptr;
  pto_device_shape shape{};
  pto_error error{};
  CHECK_EQUAL(pto_backend_entry()->open(0, &wrong, 1, &device, &shape, &error), PTO_ERROR_USAGE);
  CHECK(std::strstr(error.message, "expected text or json") != nullptr);
}

TEST(an_unfreed_buffer_is_reported) {
  Fixture device({{"workers", "1"}});
  uint64_t address = 0;
  CHECK_EQUAL(device.api->allocate(device.device, 77, &address, &device.error), PTO_OK);
  const pto_leak_report leaks = device.close();
  CHECK_EQUAL(leaks.buffers, 1u);
  CHECK_EQUAL(leaks.first_address, address);
  CHECK_EQUAL(leaks.first_bytes, 77u);
}

TEST(a_crash_names_kernel_task_and_core) {
  const struct {
    int number;
    const char* name;
  } signals[] = {{SIGSEGV, "SIGSEGV"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}};
  for (const char* mode : {"threads", "deterministic"}) {
    for (const auto& [number, name] : signals) {
      int status = 0;
      const std::string text = output_of({"--crash", mode, std::to_string(number)}, status);
      CHECK(WIFSIGNALED(status));
      CHECK_EQUAL(WTERMSIG(status), number);
      const std::string line = std::string("pto: kernel fragile (func_id 0) crashed with ") + name;
      const size_t at = text.find(line);
      CHECK(at != std::string::npos);
      CHECK(text.find(": task ", at) != std::string::npos);
      CHECK(text.find(" on core AIV ", at) != std::string::npos);
      CHECK(text.find(", device 0\n", at) != std::string::npos);
    }
  }
}

// The thread that crashed first writes the report. The second thread waits until the report is
// complete, although it could end the process earlier.
TEST(of_two_simultaneous_crashes_one_is_reported) {
  for (int i = 0; i < 20; ++i) {
    int status = 0;
    const std::string text = output_of({"--crash-twice"}, status, true);
    CHECK(WIFSIGNALED(status));
    CHECK_EQUAL(WTERMSIG(status), SIGSEGV);
    const size_t at = text.find("crashed with SIGSEGV");
    CHECK(at != std::string::npos);
    CHECK(text.find("crashed with", at + 1) == std::string::npos);
  }
}

TEST(a_parent_that_reads_the_page_reports_the_crash) {
  for (const char* mode : {"threads", "deterministic"}) {
    const int file = memfd_create("activity", 0);
    CHECK_EQUAL(ftruncate(file, sizeof(pto_activity_page)), 0);
    int status = 0;
    const std::string text =
        output_of({"--crash", mode, std::to_string(SIGSEGV), std::to_string(file)}, status);
    CHECK(WIFSIGNALED(status));
    CHECK(text.find("crashed with") == std::string::npos);
    pto_activity_page page{};
    CHECK_EQUAL(pread(file, &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
    uint64_t signal = 0;
    for (const pto_activity_slot& slot : page.slot) signal = std::max(signal, slot.signal);
    CHECK_EQUAL(signal, uint64_t{SIGSEGV});
    close(file);
  }
}

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--crash-twice") return crash_twice(std::atoi(argv[2]));
  if (mode == "--crash") return crash_here(argv[2], std::atoi(argv[3]), argv[4]);
  if (mode == "--log-json") return log_json_here();
  return mode == "--log" ? log_here(argv[2]) : check::run(argc, argv);
}
