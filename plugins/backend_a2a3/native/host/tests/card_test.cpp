// The life of a device: contexts, streams, memory, waiting, and what follows a failure.
#include <thread>

#include "error.hpp"
#include "scenario.hpp"

using namespace pto::a2a3;
using namespace pto::a2a3::cann;

namespace {

constexpr int64_t kLongNs = int64_t{20} * 1000 * 1000 * 1000;

void open(Card& card, const CardOptions& options = {}) {
  pto_error error = {};
  if (card.open(options, &error) != PTO_OK) check::fail(__FILE__, __LINE__, error.message);
}

TEST(a_run_leaves_nothing_and_breaks_no_rule) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  for (int round = 0; round < 3; ++round) {
    scenario::CardDevice device(fake.control);
    pto_error error = {};
    CHECK_EQUAL(scenario::Scenario(card).run({}, &error), PTO_OK);
    card.close();
    card.close();
    CHECK_EQUAL(fake.control.findings(), std::string());
  }
}

TEST(each_release_gets_the_same_calls) {
  vendor::Fake& fake = vendor::fresh();
  for (const char* version : {"8.1.RC1", "9.0.0", "9.1.0"}) {
    CHECK_EQUAL(fake.control.configure((std::string("version=") + version).c_str()), 0);
    CannDriver driver;
    pto_error error = {};
    CHECK_EQUAL(driver.load(vendor::options(vendor::kFolders / "fake"), &error), PTO_OK);
    Card card(driver);
    scenario::CardDevice device(fake.control);
    CHECK_EQUAL(scenario::Scenario(card).run({}, &error), PTO_OK);
    card.close();
    CHECK_EQUAL(fake.control.findings(), std::string());
  }
}

// A block has one cube core and two vector cores.
TEST(blocks_are_limited_by_both_kinds_of_cores) {
  vendor::Fake& fake = vendor::fresh("cubes=20,vectors=30");
  Card card(fake.driver);
  open(card);
  CHECK_EQUAL(card.blocks(), 15u);
  card.close();
  CHECK_EQUAL(fake.control.configure("cubes=4"), 0);
  open(card);
  CHECK_EQUAL(card.blocks(), 4u);
  card.close();
  CHECK_EQUAL(fake.control.configure("vectors=1"), 0);
  pto_error error = {};
  CHECK_EQUAL(card.open({}, &error), PTO_ERROR_CAPACITY);
  CHECK_CONTAINS(error.message, "offers 4 cube cores and 1 vector cores; a block needs 1 and 2");
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(other_threads_use_the_context_of_the_card) {
  vendor::Fake& fake = vendor::fresh();
  Card first(fake.driver), second(fake.driver);
  open(first, {0, "", {}});
  open(second, {1, "", {}});
  std::thread([&] {
    for (Card* card : {&first, &second, &first}) {
      uint64_t block = 0;
      pto_error error = {};
      CHECK_EQUAL(card->memory().allocate(100, &block, &error), PTO_OK);
      CHECK_EQUAL(card->memory().fill(block, 1, 100, &error), PTO_OK);
      CHECK_EQUAL(card->memory().free(block, &error), PTO_OK);
    }
  }).join();
  first.close();
  second.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(a_device_that_does_not_exist_is_refused) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  pto_error error = {};
  CHECK_EQUAL(card.open({4, "", {}}, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "invalid device number");
  CHECK_EQUAL(card.memory().free(64, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "closed");
}

TEST(another_chip_is_refused) {
  vendor::Fake& fake = vendor::fresh("soc=Ascend310P3");
  Card card(fake.driver);
  pto_error error = {};
  CHECK_EQUAL(card.open({}, &error), PTO_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(error.message, "the chip Ascend310P3 is not an Ascend A2 or A3");
  CHECK_EQUAL(fake.control.findings(), std::string());
  for (const char* chip : {"soc=Ascend910_9391", "soc=Ascend910B4-1"}) {
    CHECK_EQUAL(fake.control.configure(chip), 0);
    open(card);
    card.close();
  }
  fake.control.fail("aclrtGetSocName", 1, 507000, 0);
  CHECK_EQUAL(card.open({}, &error), PTO_ERROR_LOAD);
}

TEST(exhausted_memory_and_streams_are_reported) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  uint64_t block = 0;
  pto_error error = {};
  CHECK_EQUAL(card.memory().allocate(size_t{65} << 20, &block, &error), PTO_ERROR_MEMORY);
  CHECK_EQUAL(block, 0u);
  CHECK_CONTAINS(error.message, "aclrtMalloc failed with code 207001");
  card.close();
  CHECK_EQUAL(fake.control.configure("streams=1"), 0);
  CHECK_EQUAL(card.open({}, &error), PTO_ERROR_CAPACITY);
  CHECK_CONTAINS(error.message, "207008");
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(core_code_is_registered_once) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  Handle first = nullptr, second = nullptr, other = nullptr;
  pto_error error = {};
  CHECK_EQUAL(card.register_cores("one", 3, &first, &error), PTO_OK);
  CHECK_EQUAL(card.register_cores("one", 3, &second, &error), PTO_OK);
  CHECK_EQUAL(card.register_cores("two", 3, &other, &error), PTO_OK);
  CHECK(first == second && first != other);
  CHECK_EQUAL(fake.control.calls("rtRegisterAllKernel"), 2u);
  const DeviceBinary again = {kMagicAiCore, 0, "one", 3};
  CHECK_EQUAL(fake.driver.functions().rtRegisterAllKernel(&again, &other), 0);
  CHECK_CONTAINS(fake.control.findings(), "error: register once");
}

TEST(a_renewed_core_stream_is_another_one) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  const Handle before = card.stream(StreamKind::kCore);
  const Handle aicpu = card.stream(StreamKind::kAicpu);
  CHECK_EQUAL(card.renew_core_stream(nullptr), PTO_OK);
  CHECK(card.stream(StreamKind::kCore) != before);
  CHECK(card.stream(StreamKind::kAicpu) == aicpu);
}

// A program that works until the test ends it.
struct SlowDevice {
  static int32_t run(void* context, const pto_fake_launch* launch) {
    auto& device = *static_cast<SlowDevice*>(context);
    device.has_started = true;
    while (!device.may_end && !scenario::is_given_up(*launch)) usleep(100);
    return device.code;
  }
  std::atomic<bool> has_started{false};
  std::atomic<bool> may_end{false};
  std::atomic<int32_t> code{0};
};

Handle start_cores(vendor::Fake& fake, Card& card, SlowDevice& device) {
  fake.control.set_program(SlowDevice::run, &device);
  Handle binary = nullptr;
  pto_error error = {};
  CHECK_EQUAL(card.register_cores("code", 4, &binary, &error), PTO_OK);
  CHECK_EQUAL(card.launch_cores(binary, 2, "argument", 8, &error), PTO_OK);
  return binary;
}

TEST(a_core_stream_is_renewed_after_its_last_operation) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  SlowDevice device;
  start_cores(fake, card, device);
  std::thread end([&device] {
    while (!device.has_started) usleep(100);
    usleep(20'000);
    device.may_end = true;
  });
  CHECK_EQUAL(card.renew_core_stream(nullptr), PTO_OK);
  CHECK(device.may_end);
  end.join();
  CHECK_EQUAL(fake.control.findings().find("error:"), std::string::npos);
}

// Records the code that each launch on the cores runs.
struct CodeRecorder {
  static int32_t run(void* context, const pto_fake_launch* launch) {
    static_cast<CodeRecorder*>(context)->codes.push_back(launch->code);
    return 0;
  }
  std::vector<uint32_t> codes;
};

TEST(an_old_stream_runs_old_code) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  CodeRecorder recorder;
  fake.control.set_program(CodeRecorder::run, &recorder);
  Handle first = nullptr, second = nullptr;
  CHECK_EQUAL(card.register_cores("one", 3, &first, nullptr), PTO_OK);
  CHECK_EQUAL(card.register_cores("two", 3, &second, nullptr), PTO_OK);
  const auto launch = [&card](Handle code) {
    CHECK_EQUAL(card.launch_cores(code, 1, "argument", 8, nullptr), PTO_OK);
    CHECK_EQUAL(card.wait(kLongNs, nullptr), PTO_OK);
  };
  launch(first);
  CHECK_EQUAL(fake.control.findings().find("old stream"), std::string::npos);
  launch(second);
  CHECK_CONTAINS(fake.control.findings(), "error: old stream");
  CHECK_EQUAL(card.renew_core_stream(nullptr), PTO_OK);
  launch(second);
  CHECK(recorder.codes == (std::vector<uint32_t>{1, 1, 2}));
}

TEST(slow_is_not_stuck) {
  vendor::Fake& fake = vendor::fresh("operation_timeout_ms=50");
  Card card(fake.driver);
  open(card);
  SlowDevice device;
  start_cores(fake, card, device);
  CHECK_EQUAL(card.wait(int64_t{300} * 1000 * 1000, nullptr), PTO_PENDING);
  device.may_end = true;
  CHECK_EQUAL(card.wait(kLongNs, nullptr), PTO_OK);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

// Another program's stream on the device of `card`, with one copy that is not complete.
struct ForeignStream {
  using CopyLater = Code (*)(void*, size_t, const void*, size_t, int32_t, Handle);

  ForeignStream(vendor::Fake& fake, Card& card, uint64_t block) : card(card) {
    CHECK_EQUAL(fake.driver.functions().aclrtCreateStream(&stream), 0);
    void* library = dlopen((vendor::kFolders / "fake" / "libacl_rt.so").c_str(), RTLD_NOW);
    const auto copy = reinterpret_cast<CopyLater>(dlsym(library, "aclrtMemcpyAsync"));
    CHECK(copy != nullptr);
    CHECK_EQUAL(copy(reinterpret_cast<void*>(block), 3, "new", 3, kHostToDevice, stream), 0);
  }
  pto_status wait(int64_t timeout_ns, pto_error* error) {
    return card.wait_stream(stream, timeout_ns, error);
  }

  Card& card;
  Handle stream = nullptr;
};

TEST(the_work_on_a_foreign_stream_is_complete_after_the_wait) {
  vendor::Fake& fake = vendor::fresh("async_copy_ms=100");
  Card card(fake.driver);
  open(card);
  uint64_t block = 0;
  pto_error error = {};
  CHECK_EQUAL(card.memory().allocate(3, &block, &error), PTO_OK);
  CHECK_EQUAL(card.memory().copy_in(block, "old", 3, &error), PTO_OK);
  ForeignStream foreign(fake, card, block);
  CHECK_EQUAL(foreign.wait(1000, &error), PTO_PENDING);
  // Each thread has its own context.
  std::thread([&] { CHECK_EQUAL(foreign.wait(kLongNs, &error), PTO_OK); }).join();
  char bytes[3];
  CHECK_EQUAL(card.memory().copy_out(bytes, block, 3, &error), PTO_OK);
  CHECK_EQUAL(std::string(bytes, 3), "new");
  CHECK_EQUAL(card.memory().free(block, &error), PTO_OK);
  CHECK_EQUAL(fake.driver.functions().aclrtDestroyStream(foreign.stream), 0);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(a_failure_of_a_foreign_stream_is_not_that_of_the_run) {
  const struct {
    Code code;
    pto_status status;
    const char* text;
  } kCases[] = {
      {507015, PTO_ERROR_LOST, "exception on an AICore"},
      {599999, PTO_ERROR_LOST, "so its meaning is unknown"},
      {507053, PTO_ERROR_LOST, "fault of the device memory"},
      {207001, PTO_ERROR_MEMORY, "an allocation failed"},
      {107003, PTO_ERROR_USAGE, "Pass a stream of this device that was not destroyed"},
  };
  for (const auto& expected : kCases) {
    vendor::Fake& fake = vendor::fresh();
    Card card(fake.driver);
    open(card);
    uint64_t block = 0;
    pto_error error = {};
    CHECK_EQUAL(card.memory().allocate(3, &block, &error), PTO_OK);
    fake.control.fail("aclrtMemcpyAsync", 1, expected.code, 1);
    ForeignStream foreign(fake, card, block);
    CHECK_EQUAL(foreign.wait(kLongNs, &error), expected.status);
    CHECK_CONTAINS(error.message,
                   "aclrtStreamQuery failed with code " + std::to_string(expected.code));
    CHECK_CONTAINS(error.message, expected.text);
    CHECK_CONTAINS(error.message, "the run did not start");
    CHECK_EQUAL(error.vendor_code, expected.code);
    CHECK_EQUAL(card.is_usable(), !is_poison(expected.code));
    if (!card.is_usable()) {
      CHECK_EQUAL(card.memory().free(block, &error), PTO_ERROR_LOST);
      CHECK_CONTAINS(error.message, "Earlier work on the stream");
      CHECK_EQUAL(card.recover(&error), PTO_OK);
    }
  }
}

TEST(a_launch_on_the_cores_has_the_limit_of_the_settings) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card, {0, "", {1, 2}});
  SlowDevice device;
  start_cores(fake, card, device);
  pto_error error = {};
  CHECK_EQUAL(card.wait(kLongNs, &error), PTO_ERROR_TIMEOUT);
  CHECK_CONTAINS(error.message, "code 507014: an AICore operation timed out");
  CHECK_EQUAL(card.recover(&error), PTO_OK);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(the_host_waits_longer_than_the_device) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  pto_error error = {};
  CHECK_EQUAL(card.open({0, "", {50, 50}}, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "a2a3.synchronise_timeout_s is 50 and a2a3.kernel_timeout_s is 50");
  CHECK_EQUAL(fake.control.calls("aclrtSetDevice"), 0u);
}

TEST(the_first_failure_is_kept_and_a_forced_reset_makes_the_device_usable) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  uint64_t block = 0;
  CHECK_EQUAL(card.memory().allocate(100, &block, nullptr), PTO_OK);
  SlowDevice device;
  device.code = 507015;
  device.may_end = true;
  start_cores(fake, card, device);
  pto_error error = {};
  CHECK_EQUAL(card.wait(kLongNs, &error), PTO_ERROR_KERNEL);
  CHECK_CONTAINS(error.message, "507015: exception on an AICore");
  pto_error later = {};
  fail(&later, PTO_ERROR_LOST, "a later failure");
  CHECK_EQUAL(card.lose(later, &error), PTO_ERROR_KERNEL);
  CHECK_CONTAINS(error.message, "507015: exception on an AICore");
  // No later call reaches the device.
  const uint64_t copies = fake.control.calls("aclrtMemcpy");
  CHECK_EQUAL(card.memory().copy_in(block, "a", 1, &error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "device 0 is unusable because of an earlier failure");
  CHECK_CONTAINS(error.message, "507015");
  CHECK_EQUAL(card.memory().free(block, &error), PTO_ERROR_LOST);
  CHECK_EQUAL(fake.control.calls("aclrtMemcpy"), copies);
  CHECK_EQUAL(card.recover(&error), PTO_OK);
  CHECK(!card.session().is_poisoned());
  CHECK_EQUAL(card.recover(&error), PTO_OK);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
  scenario::CardDevice working(fake.control);
  CHECK_EQUAL(scenario::Scenario(card).run({}, &error), PTO_OK);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(a_wait_that_fails_loses_the_device_because_the_launch_may_still_run) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  SlowDevice device;
  start_cores(fake, card, device);
  fake.control.fail("aclrtStreamQuery", 1, 207001, 0);
  pto_error error = {};
  CHECK_EQUAL(card.wait(kLongNs, &error), PTO_ERROR_MEMORY);
  CHECK_CONTAINS(error.message, "aclrtStreamQuery failed with code 207001");
  CHECK(!card.is_usable());
  device.may_end = true;
  CHECK_EQUAL(card.recover(&error), PTO_OK);
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
}

TEST(a_call_that_fails_because_of_a_launch_reports_the_failure_of_the_launch) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  SlowDevice device;
  device.code = 507015;
  device.may_end = true;
  start_cores(fake, card, device);
  const Functions& functions = fake.driver.functions();
  void* block = nullptr;
  // The launch can fail before either call.
  while (functions.aclrtMalloc(&block, 8, kHugeFirst) == 0 && functions.aclrtFree(block) == 0) {
  }
  uint64_t address = 0;
  pto_error error = {};
  CHECK_EQUAL(card.memory().allocate(8, &address, &error), PTO_ERROR_KERNEL);
  CHECK_CONTAINS(error.message, "aclrtStreamQuery failed with code 507015");
}

TEST(a_device_that_stays_broken_is_refused_with_both_reasons) {
  vendor::Fake& fake = vendor::fresh("probe=0");
  Card card(fake.driver);
  open(card);
  SlowDevice device;
  device.code = 507010;
  device.may_end = true;
  start_cores(fake, card, device);
  pto_error error = {};
  CHECK_EQUAL(card.wait(kLongNs, &error), PTO_ERROR_LOST);
  CHECK_EQUAL(card.recover(&error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "does not work after a forced reset and is closed");
  CHECK_CONTAINS(error.message, "code 507899");
  CHECK_CONTAINS(error.message, "code 507010");
  CHECK(card.open({}, &error) == PTO_ERROR_LOST);
}

TEST(a_missing_dispatcher_and_a_second_inner_library_are_found) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  AicpuLibrary aicpu(card);
  open(card);
  BootstrapNames names;
  pto_error error = {};
  CHECK_EQUAL(find_bootstrap({8, 3}, {}, &names, &error), PTO_OK);
  CHECK_EQUAL(aicpu.install(names, scenario::images(), &error), PTO_OK);
  AicpuImages changed = scenario::images();
  changed.inner_bytes -= 1;
  CHECK_EQUAL(aicpu.install(names, changed, &error), PTO_OK);
  CHECK_CONTAINS(fake.control.findings(), "error: latch");
  AicpuImages torn = scenario::images();
  torn.dispatcher_bytes = 10;
  CHECK_EQUAL(aicpu.install(names, torn, &error), PTO_ERROR_LOST);
  CHECK_CONTAINS(error.message, "507018: exception on the AICPU");
}

// What a dispatcher has installed does not outlive the reset of the device.
TEST(without_the_dispatcher_the_load_fails) {
  vendor::Fake& fake = vendor::fresh();
  scenario::CardDevice device(fake.control);
  device.has_cores = false;
  Card card(fake.driver);
  AicpuLibrary aicpu(card);
  BootstrapNames names;
  pto_error error = {};
  CHECK_EQUAL(find_bootstrap({8, 3}, {}, &names, &error), PTO_OK);
  for (const bool has_dispatcher : {true, false}) {
    open(card);
    if (has_dispatcher) CHECK_EQUAL(aicpu.install(names, scenario::images(), &error), PTO_OK);
    Handle function = nullptr;
    uint64_t block = 0;
    CHECK_EQUAL(aicpu.find("pto_serve", &function, &error), PTO_OK);
    CHECK_EQUAL(card.memory().allocate(8, &block, &error), PTO_OK);
    const scenario::Arguments arguments = {block, 8};
    CHECK_EQUAL(aicpu.launch(function, 1, &arguments, sizeof arguments, &error), PTO_OK);
    CHECK_EQUAL(card.wait(kLongNs, &error), has_dispatcher ? PTO_OK : PTO_ERROR_LOST);
    if (!has_dispatcher) CHECK_CONTAINS(error.message, "507018: exception on the AICPU");
    card.memory().free(block, nullptr);
    aicpu.unload(nullptr);
    card.close();
  }
  CHECK_EQUAL(fake.control.findings(), std::string());
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
