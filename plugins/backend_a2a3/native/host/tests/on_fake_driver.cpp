// Runs on the device process behind the fake driver, through CANN's calls.
// Arguments: the build folder of runtime_hbg, and optionally the name of a test.
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>

#include "device_run.hpp"
#include "error.hpp"
#include "life/aicpu_device.hpp"
#include "life/kernels.hpp"
#include "pto/abi/dump.h"

using namespace device_run;

namespace {

TEST(one_task_runs_in_another_process) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1 seed=1").c_str());
  CardDevice device(fake);
  CHECK_EQUAL(device.card.blocks(), 1u);
  device.run_one_task();
  const auto process = static_cast<uint32_t>(fake.control.process(0));
  CHECK(process != 0 && process != static_cast<uint32_t>(getpid()));
  CHECK_EQUAL(device.aicpu.answer().process, process);
  CHECK_EQUAL(device.aicpu.answer().report.tasks, uint64_t{1});
  device.close();
}

// A launch sets DATA_MAIN_BASE of its cores to 0, and chooses other cores and threads.
TEST(runs_follow_on_chips_with_other_cores_and_threads) {
  for (const char* silicon : {"blocks=2 seed=3", "blocks=2 seed=4 duplicates=1", "blocks=24"}) {
    CardDevice device(vendor::fresh(settings(silicon).c_str()));
    for (int round = 0; round < 3; ++round) device.run_one_task();
    device.close();
  }
}

// An older stream could run what the instruction caches of the cores contain.
TEST(linked_code_runs_where_it_was_uploaded_on_a_new_stream) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  Kernels kernels(device.card, device.aicpu);
  const std::string path = std::string(PTO_KERNELS) + "/kernel_raw.elf";
  const pto_kernel_source source = {7,       PTO_CORE_AIV, "raw",  path.c_str(),
                                    nullptr, nullptr,      nullptr};
  pto_error error = {};
  uint64_t addresses[2] = {};
  for (uint64_t& address : addresses) {
    expect(kernels.load(source, &address, &error), error, __LINE__);
    const uint64_t streams = fake.control.calls("aclrtCreateStream");
    for (int round = 0; round < 2; ++round) {
      expect(kernels.prepare_run(&error), error, __LINE__);
      CHECK_EQUAL(fake.control.calls("aclrtCreateStream"), streams + 1);
      device.run_one_task(address);
    }
  }
  CHECK(addresses[0] / 4096 != addresses[1] / 4096);
  CHECK_EQUAL(kernels.unload(addresses[0]), PTO_OK);
  CHECK_EQUAL(kernels.unload(addresses[0]), PTO_ERROR_USAGE);
  uint64_t third = 0;
  expect(kernels.load(source, &third, &error), error, __LINE__);
  CHECK(third / 4096 != addresses[0] / 4096 && third / 4096 != addresses[1] / 4096);
  kernels.close();
  device.close();
}

// The flags between cube and vector cores need an address that the host asks for.
TEST(a_kernel_with_flags_between_cores_ends) {
  CardDevice device(vendor::fresh(settings("blocks=1").c_str()));
  pto_error error = {};
  device.start("flags");
  expect(device.finish(&error), error, __LINE__);
  device.close();
}

TEST(a_driver_that_does_not_know_the_clusters_runs_tasks) {
  const std::string unknown = ",clusters=0,register_bytes=4096";
  for (const char* silicon : {"blocks=2 seed=3", "blocks=24"}) {
    CardDevice device(vendor::fresh((settings(silicon) + unknown).c_str()));
    device.run_one_task();
    device.close();
  }
}

TEST(errors_are_also_in_the_log_of_the_vendor) {
  const std::string log = std::string(PTO_INSTALLED) + "/vendor_log_" + std::to_string(getpid());
  vendor::Fake& fake = vendor::fresh(settings("blocks=1 log=" + log).c_str());
  CardDevice device(fake);
  pto_error error = {};
  uint64_t handle = 0;
  CHECK_EQUAL(device.aicpu.unload(7, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(read_file(log), std::string("module 36 level 3: pto: ") + error.message);
  device.load(PTO_A2A3_KERNEL, kernel("add"), &handle);
  const std::string text = read_file(log);
  CHECK_EQUAL(std::count(text.begin(), text.end(), '\n'), 1);
  device.close();
  std::filesystem::remove(log);
}

TEST(a_run_has_the_limit_of_a_kernel_and_that_of_the_host) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake, {1, 2});
  device.start("hang");
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_TIMEOUT);
  CHECK_CONTAINS(error.message, "code 507014: an AICore operation timed out");
  device.recover();
  // A release without the function that sets the limit of a kernel.
  uint64_t actual_us = 0;
  const auto& set_limit = fake.driver.functions().aclrtSetOpExecuteTimeOutV2;
  CHECK_EQUAL(set_limit(uint64_t{3600} * 1'000'000, &actual_us), 0);
  device.start("hang");
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "did not end run 1 within 2 s (a2a3.synchronise_timeout_s)");
  device.recover();
  device.run_one_task();
  device.close();
}

TEST(the_library_must_be_the_one_that_the_dispatcher_installed) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CHECK_EQUAL(fake.control.configure("libraries=/nowhere"), 0);
  Card card(fake.driver);
  AicpuDevice aicpu(card);
  pto_error error = {};
  CHECK_EQUAL(card.open({}, &error), PTO_OK);
  CHECK_EQUAL(aicpu.open(images(), options(), &error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "507018: exception on the AICPU");
}

TEST(a_library_of_other_bytes_is_found_by_the_latch) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  {
    CardDevice device(fake);
  }
  Card card(fake.driver);
  AicpuDevice aicpu(card);
  pto_error error = {};
  DeviceImages changed = images();
  changed.library += '\0';
  CHECK_EQUAL(card.open({}, &error), PTO_OK);
  aicpu.open(changed, options(), &error);
  CHECK_CONTAINS(fake.control.findings(), "error: latch");
}

// The search for sufficient sizes needs 16 GiB of sparse memory.
TEST(a_device_with_little_address_space_cannot_plan) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  for (const bool is_limited : {false, true}) {
    Card card(fake.driver);
    AicpuDevice aicpu(card);
    pto_error error = {};
    expect(card.open({}, &error), error, __LINE__);
    const int32_t process = fake.control.process(0);
    uint64_t pages = 0;
    std::ifstream("/proc/" + std::to_string(process) + "/statm") >> pages;
    const rlim_t most = pages * static_cast<uint64_t>(getpagesize()) + (uint64_t{8} << 30);
    const rlimit limit = {most, most};
    if (is_limited) CHECK_EQUAL(prlimit(process, RLIMIT_AS, &limit, nullptr), 0);
    expect(aicpu.open(images(), options(), &error), error, __LINE__);
    CHECK_EQUAL(aicpu.has_planning(), !is_limited);
    expect(aicpu.close(&error), error, __LINE__);
  }
}

TEST(a_pool_that_does_not_fit_names_its_setting) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  Card card(fake.driver);
  AicpuDevice aicpu(card);
  pto_error error = {};
  expect(card.open({}, &error), error, __LINE__);
  AicpuOptions large = options();
  large.pool_bytes = uint64_t{256} << 20;
  CHECK_EQUAL(aicpu.open(images(), large, &error), PTO_ERROR_MEMORY);
  CHECK_CONTAINS(error.message, "code 207001: device 0 has no 256 MiB for the pool of the runtime");
  CHECK_CONTAINS(error.message, "of its 128 MiB are free. Set a2a3.pool_mib (PTO_A2A3_POOL_MIB)");
  CHECK_EQUAL(std::string(error.vendor_function), std::string("aclrtMalloc"));
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

// Without the log, a dump of arrays has no numbers of tasks. A bisection needs the log.
TEST(a_dumped_run_needs_no_memory_for_its_access_log) {
  AicpuOptions small = options();
  small.pool_bytes = PTO_A2A3_LINE;  // no block fits
  CardDevice device(vendor::fresh(settings("blocks=1").c_str()), {}, small);
  uint64_t kernel_address = 0, records = 0;
  device.load(PTO_A2A3_KERNEL, kernel("add"), &kernel_address);
  const uint64_t graph = device.load(PTO_A2A3_ORCHESTRATION, kernel("graph_of_7"));
  KernelRun task({7, PTO_CORE_AIV, kernel_address, nullptr, nullptr}, device.in, device.out);
  task.config.enable_dep_gen = 1;
  pto_error error = {};
  expect(device.card.memory().allocate(4096, &records, &error), error, __LINE__);
  const auto run = [&](uint32_t level) {
    pto_a2a3_dump dump = {};
    dump.level = level;
    dump.is_for_all = 1;
    dump.records = sizeof dump;
    dump.limit = 4096 - sizeof dump;
    expect(device.card.memory().copy_in(records, &dump, sizeof dump, &error), error, __LINE__);
    const uint64_t address = level == PTO_DUMP_OFF ? 0 : records;
    expect(device.aicpu.start(task.run, graph, {}, address, &error), error, __LINE__);
    return device.finish(&error);
  };
  for (const uint32_t level : {PTO_DUMP_OFF, PTO_DUMP_HASHES}) {
    CHECK_EQUAL(run(level), PTO_ERROR_MEMORY);
    CHECK_CONTAINS(error.message, " bytes for the access log of the run, which ");
  }
  const CapturedErrors errors;
  expect(run(PTO_DUMP_ALL), error, __LINE__);
  CHECK_CONTAINS(errors.text(), "pto: warning: the device has no ");
  CHECK_EQUAL(device.aicpu.answer().address, uint64_t{0});
  CHECK_EQUAL(device.card.memory().free(records, &error), PTO_OK);
  device.close();
}

TEST(a_killed_device_process_is_a_lost_device) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  device.start("hang");
  CHECK_EQUAL(device.aicpu.wait(50'000'000), PTO_PENDING);
  kill(fake.control.process(0), SIGKILL);
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "code 507010: the task scheduler of the device is gone");
  uint64_t address = 0;
  CHECK_EQUAL(device.card.memory().allocate(8, &address, &error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "507010");
  device.recover();
  device.run_one_task();
  device.close();
}

TEST(a_crash_on_a_core_is_the_first_failure_and_names_the_task) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  device.run_one_task();
  device.start("crash");
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_KERNEL);
  CHECK_CONTAINS(error.message, "code 507035: exception on a vector core");
  CHECK_EQUAL(error.func_id, 7);
  CHECK_EQUAL(error.task, int64_t{0});
  CHECK(error.core == 1 || error.core == 2);  // the vector cores of the block
  const std::string core = std::to_string(error.core);
  CHECK_CONTAINS(error.message, ("In flight: kernel 7 of task 0 on core " + core + ". ").c_str());
  device.recover();
  device.run_one_task();
  device.close();
}

TEST(a_full_log_reports_how_many_messages_are_lost) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  pto_error error = {};
  expect(card.open({}, &error), error, __LINE__);
  const auto ring = std::make_unique<pto_a2a3_log>();
  ring->written = 2;
  ring->dropped = 5;
  ring->entry[0] = {1, PTO_LOG_WARN, 5, "first"};
  uint64_t address = 0;
  expect(card.memory().allocate(sizeof *ring, &address, &error), error, __LINE__);
  expect(card.memory().copy_in(address, ring.get(), sizeof *ring, &error), error, __LINE__);
  DeviceLog log;
  log.open(address, false);
  const CapturedErrors errors;
  CHECK_EQUAL(log.read(card.memory()), uint64_t{1});  // the second message is not complete
  CHECK_EQUAL(log.read(card.memory()), uint64_t{1});
  CHECK_EQUAL(errors.text(), std::string("pto: warning: first\n"
                                         "pto: warning: 5 messages of the device are lost, because "
                                         "its log was full\n"));
  CHECK_EQUAL(card.memory().free(address, &error), PTO_OK);
}

TEST(the_texts_that_a_core_has_dropped_are_counted) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  pto_error error = {};
  expect(card.open({}, &error), error, __LINE__);
  KernelTexts texts(card.session(), false);
  expect(texts.add(5, "printer", &error), error, __LINE__);
  texts.begin_run(1);
  const auto ring = std::make_unique<pto_a2a3_texts>();
  ring->written = 1;
  ring->entry[0] = {1, 5, 7, 3, 0, "k.cpp", "first"};
  const auto drop = [&](uint32_t core, uint64_t count) {
    ring->dropped = count;
    const uint64_t at = texts.address() + core * sizeof *ring;
    expect(card.memory().copy_in(at, ring.get(), sizeof *ring, &error), error, __LINE__);
    texts.read();
    texts.read();  // has nothing new
  };
  const CapturedErrors errors;
  drop(0, 2);
  drop(2, 1);
  drop(2, 4);
  const std::string lost = " are lost, because the host did not read them in time\n";
  CHECK_EQUAL(errors.text(),
              "pto: printer (task 7, AIC 0, device 0), k.cpp:3: first\n"
              "pto: warning: 2 texts of kernels on AIC 0" +
                  lost +
                  "pto: printer (task 7, AIV 1, device 0), k.cpp:3: first\n"
                  "pto: warning: 1 texts of kernels on AIV 1" +
                  lost + "pto: warning: 3 texts of kernels on AIV 1" + lost);
  CHECK_EQUAL(card.memory().free(texts.address(), &error), PTO_OK);
}

TEST(ten_tasks_in_flight_name_no_culprit) {
  const auto progress = std::make_unique<pto_a2a3_progress>();
  const auto cores = std::make_unique<pto_a2a3_cores>();
  for (uint32_t core = 0; core < 10; ++core) {
    cores->slot[core].sequence = 3;
    cores->slot[core].payload.func_id = 5;
    cores->slot[core].payload.task = 100 + core;
  }
  pto_error failure = {};
  fail(&failure, PTO_ERROR_KERNEL, "The vendor's message");
  add_in_flight(*progress, *cores, failure);
  CHECK_CONTAINS(failure.message,
                 "In flight: kernel 5 of task 100 on core 0, kernel 5 of task 101");
  CHECK_CONTAINS(failure.message, "core 7 and 2 more. The vendor's message");
  CHECK_EQUAL(failure.func_id, -1);
  progress->finished[0] = 3;
  for (uint32_t core = 2; core < 10; ++core) progress->finished[core] = 3;
  add_in_flight(*progress, *cores, failure);
  CHECK_EQUAL(failure.task, int64_t{101});
  CHECK_EQUAL(failure.core, 1);
}

TEST(a_kernel_that_does_not_return_is_abandoned) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  device.start("hang");
  CHECK_EQUAL(device.aicpu.wait(50'000'000), PTO_PENDING);
  pto_error cause = {};
  cause.status = PTO_ERROR_TIMEOUT;
  std::strcpy(cause.message, "the run took too long");
  device.aicpu.mailbox().abort(&cause, true);
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_LOST);
  CHECK(!device.card.is_usable());
  device.recover();
  device.run_one_task();
  device.close();
}

// The process is stopped, so it cannot end the run itself.
TEST(a_device_that_does_not_answer_is_given_up) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  device.start("hang");
  CHECK_EQUAL(device.aicpu.wait(50'000'000), PTO_PENDING);
  CHECK_EQUAL(kill(fake.control.process(0), SIGSTOP), 0);
  device.aicpu.mailbox().abort(nullptr, true);
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "did not end the run within 2 s after the run was abandoned");
  device.recover();
  device.run_one_task();
  device.close();
}

// The host has a block for the input of commands, which grows.
TEST(a_long_input_arrives_whole) {
  CardDevice device(vendor::fresh(settings("blocks=1").c_str()));
  pto_error error = {};
  const uint64_t variant =
      device.load(PTO_A2A3_VARIANT, hbg + "/native/libpto_aicpu_build_graph.so");
  const std::string longest(200'000, 'x');
  const pto_option option = {"no_such_option", longest.c_str()};
  for (int round = 0; round < 2; ++round) {
    CHECK_EQUAL(device.aicpu.detach(&error), PTO_OK);
    CHECK_EQUAL(device.aicpu.attach(variant, "aicpu_build_graph", {&option, 1}, &error),
                PTO_ERROR_USAGE);
    CHECK_CONTAINS(error.message, "no_such_option");
    CHECK_EQUAL(device.aicpu.attach(variant, "aicpu_build_graph", {}, &error), PTO_OK);
  }
  device.run_one_task();
  device.close();
}

TEST(a_refused_run_leaves_the_device_usable) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  pto_call_config config = {};
  config.aicpu_thread_num = 3;
  config.block_dim = 2;
  pto_run run = {};
  run.config = &config;
  pto_error error = {};
  CHECK_EQUAL(device.aicpu.start(run, 0, {}, 0, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "block_dim is 2, but this device has 1 blocks");
  config.block_dim = 1;
  CHECK_EQUAL(device.aicpu.start(run, 0, {}, 0, &error), PTO_OK);
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(error.message, "without the library of an orchestration");
  device.run_one_task();
  device.close();
}

TEST(an_explanation_comes_during_a_run) {
  vendor::Fake& fake = vendor::fresh(settings("blocks=1").c_str());
  CardDevice device(fake);
  device.start("hang");
  std::string text;
  while (text.empty()) CHECK(device.aicpu.mailbox().explain(text));
  CHECK_CONTAINS(text, "aicpu_build_graph: ");
  device.aicpu.mailbox().abort(nullptr, true);
  pto_error error = {};
  CHECK_EQUAL(device.finish(&error), PTO_ERROR_LOST);
  device.recover();
  device.close();
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  hbg = argv[1];
  std::filesystem::create_directories(PTO_INSTALLED);
  return check::run_all(argc - 1, argv + 1);
}
