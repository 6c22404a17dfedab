// The backend table on the fake driver: one device from open() to close().
// Arguments: the build folder of runtime_hbg, and optionally the name of a test.
#include <dlfcn.h>
#include <signal.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <filesystem>
#include <thread>

#include "device_run.hpp"
#include "pto/abi/backend.h"
#include "pto/abi/dump.h"

using namespace device_run;

namespace {

const pto_backend_api& table() {
  void* library = dlopen(PTO_BACKEND, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
  return *reinterpret_cast<pto_backend_entry_fn>(dlsym(library, PTO_BACKEND_ENTRY_SYMBOL))();
}

// A device with a variant. Its driver is another copy of the fake driver than that of the test.
struct Opened {
  explicit Opened(const char* variant, const char* log_format = "text", int32_t number = 0) {
    const std::string folder = (vendor::kFolders / "fake").string();
    const pto_option options[] = {
        {"folder", folder.c_str()}, {"images", PTO_IMAGES}, {"fake", "1"},
        {"pool_mib", "64"},         {"log_level", "info"},  {"log_format", log_format}};
    expect(api.open(number, options, 6, &device, &shape, &error), error, __LINE__);
    const std::string path = hbg + "/native/libpto_" + variant + ".so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    const auto entry =
        reinterpret_cast<pto_runtime_entry_fn>(dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL));
    const pto_artefact artefact = {"runtime", path.c_str()};
    const pto_attachment attachment = {entry(variant), variant, &artefact, 1, 0};
    CHECK_EQUAL(shape.has_planning, 1u);
    expect(api.attach(device, &attachment, nullptr, 0, &proxy, &runtime, &error), error, __LINE__);
  }
  ~Opened() {
    api.detach(device);
    api.close(device, &leaks);
    CHECK_EQUAL(leaks.buffers, uint64_t{0});
  }

  pto_status run(const pto_run& run) {
    expect(api.start(device, &run, &error), error, __LINE__);
    CHECK_EQUAL(api.wait(device, kLongNs), PTO_OK);
    return api.finish(device, &report, &error);
  }

  const pto_backend_api& api = table();
  void* device = nullptr;
  void* runtime = nullptr;
  const pto_runtime_api* proxy = nullptr;
  pto_device_shape shape = {};
  pto_error error = {};
  pto_leak_report leaks = {};
  pto_run_report report = {};
};

// Adds 1 to a block of floats in a second one, `rounds` times.
void orchestrate_on_device(Opened& opened, int rounds) {
  const pto_backend_api& api = opened.api;
  pto_error& error = opened.error;
  float values[kCount] = {1, 2, 3}, read[kCount] = {};
  uint64_t in = 0, out = 0, graph = 0;
  expect(api.allocate(opened.device, sizeof values, &in, &error), error, __LINE__);
  expect(api.allocate(opened.device, sizeof values, &out, &error), error, __LINE__);
  CHECK_EQUAL(in % 1024, uint64_t{0});
  expect(api.copy_in(opened.device, in, values, sizeof values, &error), error, __LINE__);
  const std::string path = kernel("add");
  const pto_kernel_source source = {7,       PTO_CORE_AIV, "add",  path.c_str(),
                                    nullptr, nullptr,      nullptr};
  pto_kernel_entry entry = {7, PTO_CORE_AIV, 0, "add", nullptr};
  expect(api.load_kernel(opened.device, &source, &entry.address, &error), error, __LINE__);
  const std::string library = kernel("graph_of_7");
  expect(api.load_library(opened.device, library.c_str(), &graph, &error), error, __LINE__);
  const KernelRun task(entry, in, out, graph);
  for (int round = 0; round < rounds; ++round) {
    expect(opened.run(task.run), error, __LINE__);
    CHECK_EQUAL(opened.report.tasks, uint64_t{1});
  }
  expect(api.copy_out(opened.device, read, out, sizeof read, &error), error, __LINE__);
  CHECK_EQUAL(read[2], 4.0f);
  CHECK_EQUAL(api.unload_kernel(opened.device, entry.address), PTO_OK);
  CHECK_EQUAL(api.unload_kernel(opened.device, entry.address), PTO_ERROR_USAGE);
  CHECK_EQUAL(api.unload_library(opened.device, graph), PTO_OK);
  CHECK_EQUAL(api.free(opened.device, in + 8, &error), PTO_ERROR_ADDRESS);
  CHECK_EQUAL(api.free(opened.device, in, &error), PTO_OK);
  CHECK_EQUAL(api.free(opened.device, out, &error), PTO_OK);
}

TEST(an_orchestration_runs_on_the_device) {
  Opened opened("aicpu_build_graph");
  std::atomic<bool> is_over{false};
  std::thread observer([&] {
    char seen[512];
    while (!is_over) opened.proxy->explain(opened.runtime, seen, sizeof seen);
  });
  orchestrate_on_device(opened, 3);
  is_over = true;
  observer.join();
  char text[512] = {};
  opened.proxy->explain(opened.runtime, text, sizeof text - 1);
  CHECK_CONTAINS(text, "aicpu_build_graph");
}

TEST(a_device_that_closes_without_the_end_of_a_run_writes_its_dump) {
  const std::string path = std::string(PTO_INSTALLED) + "/calls_" + std::to_string(getpid());
  pto_dump_header header = {};
  header.magic = PTO_DUMP_MAGIC;
  header.first = sizeof header;
  header.limit = 1 << 20;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(&header), sizeof header);
  {
    Opened opened("aicpu_build_graph");
    const std::string file = kernel("add"), library = kernel("graph_of_7");
    const pto_kernel_source source = {7,       PTO_CORE_AIV, "add",  file.c_str(),
                                      nullptr, nullptr,      nullptr};
    pto_kernel_entry entry = {7, PTO_CORE_AIV, 0, "add", nullptr};
    uint64_t blocks[2] = {}, graph = 0;
    for (uint64_t& block : blocks) {
      CHECK_EQUAL(opened.api.allocate(opened.device, 4 * kCount, &block, nullptr), PTO_OK);
    }
    CHECK_EQUAL(opened.api.load_kernel(opened.device, &source, &entry.address, nullptr), PTO_OK);
    CHECK_EQUAL(opened.api.load_library(opened.device, library.c_str(), &graph, nullptr), PTO_OK);
    KernelRun task(entry, blocks[0], blocks[1], graph);
    task.config.enable_dump_tensor = PTO_DUMP_ALL;
    std::strcpy(task.config.output_prefix, path.c_str());
    expect(opened.api.start(opened.device, &task.run, &opened.error), opened.error, __LINE__);
    CHECK_EQUAL(opened.api.wait(opened.device, kLongNs), PTO_OK);
    for (const uint64_t block : blocks) {
      CHECK_EQUAL(opened.api.free(opened.device, block, nullptr), PTO_OK);
    }
  }
  const std::string calls = read_file(path);
  CHECK(calls.size() > sizeof header + sizeof(pto_dump_record));
  CHECK_CONTAINS(calls, "kernel_add.so");
  std::filesystem::remove(path);
}

// Adds 10 to a block of floats, `rounds` times.
void submit_on_host(Opened& opened, int rounds) {
  const pto_backend_api& api = opened.api;
  float values[kCount] = {1, 2, 3};
  uint64_t block = 0;
  CHECK_EQUAL(api.allocate(opened.device, sizeof values, &block, &opened.error), PTO_OK);
  CHECK_EQUAL(api.copy_in(opened.device, block, values, sizeof values, &opened.error), PTO_OK);
  const std::string path = kernel("add");
  const pto_kernel_source source = {0,       PTO_CORE_AIV, "add",  path.c_str(),
                                    nullptr, nullptr,      nullptr};
  pto_kernel_entry entry = {0, PTO_CORE_AIV, 0, "add", nullptr};
  CHECK_EQUAL(api.load_kernel(opened.device, &source, &entry.address, &opened.error), PTO_OK);
  pto_run run = {};
  run.kernels = &entry;
  run.num_kernels = 1;
  for (int round = 0; round < rounds; ++round) {
    CHECK_EQUAL(api.start(opened.device, &run, &opened.error), PTO_OK);
    const uint64_t args[] = {block, block, 10, kCount};
    const pto_task task = {0, PTO_CORE_AIV, 4, -1, args, 0, 0, nullptr};
    CHECK_EQUAL(opened.proxy->submit(opened.runtime, &task), int64_t{0});
    api.orchestration_done(opened.device, 0);
    CHECK_EQUAL(api.wait(opened.device, kLongNs), PTO_OK);
    expect(api.finish(opened.device, &opened.report, &opened.error), opened.error, __LINE__);
  }
  CHECK_EQUAL(api.copy_out(opened.device, values, block, sizeof values, &opened.error), PTO_OK);
  CHECK_EQUAL(values[1], 2.0f + 10.0f * static_cast<float>(rounds));
  CHECK_EQUAL(api.free(opened.device, block, &opened.error), PTO_OK);
}

TEST(the_caller_submits_to_the_instance_on_the_host) {
  Opened opened("host_build_graph");
  const pto_backend_api& api = opened.api;
  submit_on_host(opened, 2);
  pto_run run = {};
  CHECK_EQUAL(api.start(opened.device, &run, &opened.error), PTO_OK);
  api.orchestration_done(opened.device, 5);
  CHECK_EQUAL(api.wait(opened.device, kLongNs), PTO_OK);
  CHECK_EQUAL(api.finish(opened.device, &opened.report, &opened.error), PTO_ERROR_ORCHESTRATION);
}

// Both threads start each round together.
TEST(two_devices_run_two_variants_at_the_same_time) {
  Opened on_device("aicpu_build_graph", "text", 0), on_host("host_build_graph", "text", 1);
  constexpr int kRounds = 5;
  std::barrier both(2);
  std::thread host([&] {
    for (int round = 0; round < kRounds; ++round) {
      both.arrive_and_wait();
      submit_on_host(on_host, 1);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    both.arrive_and_wait();
    orchestrate_on_device(on_device, 1);
  }
  host.join();
}

TEST(the_explanation_of_a_lost_run_is_an_earlier_state) {
  Opened opened("aicpu_build_graph");
  const pto_backend_api& api = opened.api;
  pto_error& error = opened.error;
  const std::string path = kernel("hang"), library = kernel("graph_of_7");
  const pto_kernel_source source = {7,       PTO_CORE_AIV, "hang", path.c_str(),
                                    nullptr, nullptr,      nullptr};
  pto_kernel_entry entry = {7, PTO_CORE_AIV, 0, "hang", nullptr};
  expect(api.load_kernel(opened.device, &source, &entry.address, &error), error, __LINE__);
  uint64_t graph = 0;
  expect(api.load_library(opened.device, library.c_str(), &graph, &error), error, __LINE__);
  const KernelRun task(entry, 0, 0, graph);
  expect(api.start(opened.device, &task.run, &error), error, __LINE__);
  char text[512] = {};
  while (opened.proxy->explain(opened.runtime, text, sizeof text - 1) == 0) continue;
  CHECK_CONTAINS(text, "aicpu_build_graph: ");
  // The device process is the only child of this thread.
  std::ifstream children("/proc/thread-self/children");
  pid_t process = 0;
  CHECK(children >> process);
  CHECK_EQUAL(kill(process, SIGKILL), 0);
  CHECK_EQUAL(api.wait(opened.device, kLongNs), PTO_OK);
  CHECK_EQUAL(api.finish(opened.device, &opened.report, &error), PTO_ERROR_LOST);
  const size_t length = opened.proxy->explain(opened.runtime, text, sizeof text - 1);
  CHECK_CONTAINS(std::string(text, length), "an earlier state:\naicpu_build_graph: ");
}

TEST(the_log_of_the_device_is_on_standard_error) {
  for (const bool is_json : {false, true}) {
    Opened opened("aicpu_build_graph", is_json ? "json" : "text");
    uint64_t graph = 0;
    const std::string path = kernel("printing_graph");
    expect(opened.api.load_library(opened.device, path.c_str(), &graph, &opened.error),
           opened.error, __LINE__);
    pto_call_config config = {};
    config.aicpu_thread_num = 3;
    pto_run run = {};
    run.library = graph;
    run.config = &config;
    const CapturedErrors errors;
    for (int round = 0; round < 2; ++round) expect(opened.run(run), opened.error, __LINE__);
    const std::string shown = errors.text();
    const std::string line = "pto: info: aicpu_build_graph: 0 tasks, 0 edges\n";
    if (!is_json) CHECK_EQUAL(shown, line + line);
    if (is_json) CHECK_CONTAINS(shown, "\"text\": \"aicpu_build_graph: 0 tasks, 0 edges\", ");
  }
}

// Runs the kernel that prints; `mode` 1: it crashes, 2: its assertion fails.
pto_status print_texts(Opened& opened, uint64_t mode, std::string& shown) {
  const pto_backend_api& api = opened.api;
  const std::string path = kernel("print"), library = kernel("graph_of_7");
  const pto_kernel_source source = {7,       PTO_CORE_AIV, "printer", path.c_str(),
                                    nullptr, nullptr,      nullptr};
  pto_kernel_entry entry = {7, PTO_CORE_AIV, 0, "printer", nullptr};
  uint64_t graph = 0;
  expect(api.load_kernel(opened.device, &source, &entry.address, &opened.error), opened.error,
         __LINE__);
  expect(api.load_library(opened.device, library.c_str(), &graph, &opened.error), opened.error,
         __LINE__);
  const KernelRun task(entry, mode, 64, graph);
  const CapturedErrors errors;
  const pto_status status = opened.run(task.run);
  shown = errors.text();
  return status;
}

void check_100_texts(const std::string& shown) {
  size_t at = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string end = "), printing_kernel.cpp:5: text " + std::to_string(i) + "\n";
    CHECK_EQUAL(shown.compare(at, 26, "pto: printer (task 0, AIV "), 0);
    const size_t next = shown.find('\n', at) + 1;
    CHECK_CONTAINS(shown.substr(at, next - at), ", device 1" + end);
    at = next;
  }
}

TEST(texts_of_kernels_arrive_in_order_and_before_the_end_of_the_run) {
  Opened opened("aicpu_build_graph", "text", 1);
  std::string shown;
  for (int round = 0; round < 2; ++round) {
    CHECK_EQUAL(print_texts(opened, 2, shown), PTO_ERROR_KERNEL);
    check_100_texts(shown);
    CHECK_CONTAINS(opened.error.message, "kernel 7 of task 0 on core ");
    CHECK_CONTAINS(opened.error.message,
                   ": the assertion at printing_kernel.cpp:7 failed: args[0] != 2 (2 != 2): in "
                   "task 0");
    CHECK_EQUAL(opened.error.func_id, 7);
    CHECK_EQUAL(opened.error.task, int64_t{0});
    expect(print_texts(opened, 0, shown), opened.error, __LINE__);
    check_100_texts(shown);
  }
  CHECK(print_texts(opened, 1, shown) != PTO_OK);
  check_100_texts(shown);
}

TEST(unknown_options_and_missing_libraries_are_refused) {
  const pto_backend_api& api = table();
  void* device = nullptr;
  pto_device_shape shape = {};
  pto_error error = {};
  const pto_option unknown = {"speed", "1"};
  CHECK_EQUAL(api.open(0, &unknown, 1, &device, &shape, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "the backend has no option \"speed\"");
  const pto_option invalid = {"pool_mib", "0"};
  CHECK_EQUAL(api.open(0, &invalid, 1, &device, &shape, &error), PTO_ERROR_USAGE);
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  hbg = argv[1];
  setenv("PTO_FAKE_DRIVER", settings("blocks=2 seed=9").c_str(), 1);
  return check::run_all(argc - 1, argv + 1);
}
