// What the fake driver refuses and records, so that tests on it mean something for a card.
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "scenario.hpp"

using namespace pto::a2a3;
using namespace pto::a2a3::cann;

namespace {

constexpr int64_t kLongNs = int64_t{20} * 1000 * 1000 * 1000;

void open(Card& card, const CardOptions& options = {}) {
  pto_error error = {};
  if (card.open(options, &error) != PTO_OK) check::fail(__FILE__, __LINE__, error.message);
}

TEST(blocks_are_aligned_to_64_only_and_have_undefined_content) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  for (const size_t bytes : {size_t{1}, size_t{100}, size_t{1024}, size_t{100000}}) {
    uint64_t block = 0;
    uint8_t byte = 0;
    pto_error error = {};
    CHECK_EQUAL(card.memory().allocate(bytes, &block, &error), PTO_OK);
    CHECK_EQUAL(block % 64, 0u);
    CHECK(block % 1024 != 0);
    CHECK_EQUAL(card.memory().copy_out(&byte, block + bytes - 1, 1, &error), PTO_OK);
    CHECK_EQUAL(int{byte}, 0xCD);
    CHECK_EQUAL(card.memory().free(block, &error), PTO_OK);
  }
}

TEST(copies_outside_a_block_and_a_second_free_are_found) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  uint64_t block = 0;
  char bytes[128] = {};
  CHECK_EQUAL(card.memory().allocate(100, &block, nullptr), PTO_OK);
  CHECK_EQUAL(card.memory().copy_in(block, bytes, 101, nullptr), PTO_ERROR_INTERNAL);
  CHECK_CONTAINS(fake.control.findings(), "error: bounds");
  CHECK_CONTAINS(fake.control.findings(), "leak: block of 100 bytes");
  auto* view = static_cast<uint8_t*>(fake.control.view(block, 100));
  view[100] = 1;
  view[-1] = 1;
  CHECK_EQUAL(card.memory().free(block, nullptr), PTO_OK);
  CHECK_CONTAINS(fake.control.findings(), "overrun: bytes before the block of 100");
  CHECK_CONTAINS(fake.control.findings(), "overrun: bytes after the block of 100");
  CHECK_EQUAL(card.memory().free(block, nullptr), PTO_ERROR_INTERNAL);
  CHECK_CONTAINS(fake.control.findings(), "error: double free");
  CHECK_EQUAL(card.memory().copy_in(block, bytes, 1, nullptr), PTO_ERROR_INTERNAL);
}

TEST(the_host_cannot_dereference_a_device_address) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  uint64_t block = 0;
  CHECK_EQUAL(card.memory().allocate(100, &block, nullptr), PTO_OK);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // of a sanitizer
    _exit(*reinterpret_cast<volatile uint8_t*>(block) == 0xCD ? 0 : 1);
  }
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  card.memory().free(block, nullptr);
}

// Each of these calls differs in one argument from one that the plugin makes.
TEST(the_fake_driver_refuses_what_is_not_known_of_the_vendor) {
  vendor::Fake& fake = vendor::fresh();
  const Functions& functions = fake.driver.functions();
  Card card(fake.driver);
  open(card);
  int64_t value = 0;
  CHECK_EQUAL(functions.halGetDeviceInfo(0, kHalModuleAicpu, kHalInfoOccupy, &value), 0);
  CHECK_EQUAL(functions.halGetDeviceInfo(0, kHalModuleAicore, kHalInfoOccupy, &value), 3);
  CHECK_EQUAL(functions.halGetDeviceInfo(0, kHalModuleAicpu, 3, &value), 3);
  HalUnits units = {};
  const auto ask = [&](int32_t module, int32_t information, int32_t bytes) {
    return functions.halGetDeviceInfoByBuff(0, module, information, &units, &bytes);
  };
  CHECK_EQUAL(ask(kHalModuleAicore, kHalInfoOccupy, 16), 0);
  CHECK_EQUAL(ask(kHalModuleAicore, kHalInfoOccupy, 8), 3);
  CHECK_EQUAL(ask(kHalModuleAicpu, kHalInfoOccupy, 16), 3);
  CHECK_EQUAL(ask(kHalModuleAicore, 3, 16), 3);
  HalAddressRange range = {};
  HalAddressQuery query = {kHalCoreRegisters, 0};
  CHECK_EQUAL(functions.halMemCtl(kHalAddressMap, &query, sizeof query, &range, nullptr), 0);
  CHECK_EQUAL(functions.halMemCtl(1, &query, sizeof query, &range, nullptr), 3);
  query.address_type = 3;
  CHECK_EQUAL(functions.halMemCtl(kHalAddressMap, &query, sizeof query, &range, nullptr), 3);

  uint64_t address = 0, actual = 0;
  CHECK_EQUAL(functions.rtGetC2cCtrlAddr(&address, nullptr), 107000);
  CHECK_EQUAL(functions.aclrtSynchronizeDeviceWithTimeout(-1), 107000);
  CHECK_EQUAL(functions.aclrtMemcpy(&address, 8, &actual, 0, kHostToHost), 107000);
  CHECK_EQUAL(fake.control.findings().find("timeout"), std::string::npos);
  CHECK_EQUAL(functions.aclrtSetOpExecuteTimeOutV2(0, &actual), 0);
  CHECK_CONTAINS(fake.control.findings(), "error: timeout");

  Handle binary = nullptr;
  CHECK_EQUAL(card.register_cores("code", 4, &binary, nullptr), PTO_OK);
  uint64_t word = 0;
  const auto launch = [&](void* memory, uint8_t never_timeout, uint8_t has_tiling) {
    CoreArguments arguments = {};
    arguments.args = &word;
    arguments.args_size = sizeof word;
    arguments.has_tiling = has_tiling;
    TaskSettings settings = {};
    settings.schedule_mode = kBatchSchedule;
    settings.never_timeout = never_timeout;
    return functions.rtKernelLaunchWithHandleV2(binary, 0, 1, &arguments, memory,
                                                card.stream(StreamKind::kCore), &settings);
  };
  fake.control.set_program([](void*, const pto_fake_launch*) { return 0; }, nullptr);
  CHECK_EQUAL(launch(nullptr, 0, 0), 0);
  CHECK_EQUAL(launch(&word, 0, 0), 107000);
  CHECK_EQUAL(launch(nullptr, 1, 0), 107000);
  CHECK_EQUAL(launch(nullptr, 0, 1), 107000);
  CHECK_EQUAL(card.wait(kLongNs, nullptr), PTO_OK);
}

TEST(the_fake_driver_reads_a_whole_description_of_a_function_only) {
  vendor::Fake& fake = vendor::fresh();
  const Functions& functions = fake.driver.functions();
  Card card(fake.driver);
  open(card);
  LoadOption option = {};
  option.id = kLoadCpuKernelMode;
  const LoadSettings settings = {&option, 1};
  const std::string whole =
      "{\"f\": {\"opInfo\": {\"functionName\": \"f\", \"kernelSo\": \"f.so\", \"opKernelLib\": "
      "\"AICPUKernel\", \"computeCost\": \"100\", \"engine\": \"DNN_VM_AICPU\", \"flagAsync\": "
      "\"False\", \"flagPartial\": \"False\", \"userDefined\": \"False\"}}}";
  const vendor::fs::path file =
      vendor::fs::temp_directory_path() / ("pto_description_" + std::to_string(getpid()));
  const auto load = [&](const std::string& text) {
    std::ofstream(file) << text;
    Handle binary = nullptr;
    const Code code = functions.rtsBinaryLoadFromFile(file.c_str(), &settings, &binary);
    if (code == 0) functions.rtsBinaryUnload(binary);
    return code;
  };
  CHECK_EQUAL(load(whole), 0);
  for (const char* member : {"functionName", "kernelSo", "opKernelLib", "computeCost", "engine",
                             "flagAsync", "flagPartial", "userDefined"}) {
    std::string torn = whole;
    torn.replace(torn.find(member), 1, "x");
    CHECK_EQUAL(load(torn), 107000);
  }
  vendor::fs::remove(file);
}

TEST(a_forced_reset_without_a_synchronisation_is_recorded) {
  vendor::Fake& fake = vendor::fresh();
  const Functions& functions = fake.driver.functions();
  CHECK_EQUAL(functions.aclrtSetDevice(0), 0);
  CHECK_EQUAL(functions.aclrtSynchronizeDeviceWithTimeout(10), 0);
  CHECK_EQUAL(functions.aclrtResetDeviceForce(0), 0);
  CHECK_EQUAL(fake.control.findings(), std::string());
  CHECK_EQUAL(functions.aclrtSetDevice(0), 0);
  CHECK_EQUAL(functions.aclrtResetDeviceForce(0), 0);
  CHECK_CONTAINS(fake.control.findings(), "error: settle");
}

TEST(calls_in_a_wrong_order_are_recorded) {
  vendor::Fake& fake = vendor::fresh();
  const Functions& functions = fake.driver.functions();
  std::thread([&] {
    void* block = nullptr;
    CHECK_EQUAL(functions.aclrtMalloc(&block, 8, kHugeFirst), 107002);
  }).join();
  CHECK_CONTAINS(fake.control.findings(), "error: context: aclrtMalloc");
  CHECK_EQUAL(functions.aclrtResetDevice(0), 107001);
  CHECK_CONTAINS(fake.control.findings(), "error: pairing: aclrtResetDevice");
  CHECK_EQUAL(functions.aclrtSetDevice(0), 0);
  CHECK_EQUAL(functions.aclrtDestroyStream(reinterpret_cast<Handle>(0x1234)), 107017);
  CHECK_CONTAINS(fake.control.findings(), "error: handle: aclrtDestroyStream");
  CHECK_CONTAINS(fake.control.findings(), "leak: device 0 was selected 1 times");
  fake.control.reset();
  void* block = nullptr;
  CHECK_EQUAL(functions.aclrtMalloc(&block, 8, kHugeFirst), 100001);
  CHECK_CONTAINS(fake.control.findings(), "error: init: aclrtMalloc");
}

TEST(a_launch_after_a_forced_reset_without_a_probe_is_recorded) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  open(card);
  fake.control.set_program([](void*, const pto_fake_launch*) { return 507015; }, nullptr);
  Handle first = nullptr;
  CHECK_EQUAL(card.register_cores("code", 4, &first, nullptr), PTO_OK);
  CHECK_EQUAL(card.launch_cores(first, 2, "argument", 8, nullptr), PTO_OK);
  CHECK_EQUAL(card.wait(kLongNs, nullptr), PTO_ERROR_KERNEL);
  const Functions& functions = fake.driver.functions();
  CHECK_EQUAL(functions.aclrtResetDeviceForce(0), 0);
  CHECK_EQUAL(functions.aclrtSetDevice(0), 0);
  Handle stream = nullptr, binary = nullptr;
  const DeviceBinary code = {kMagicAiCore, 0, "one", 3};
  CHECK_EQUAL(functions.aclrtCreateStream(&stream), 0);
  CHECK_EQUAL(functions.rtRegisterAllKernel(&code, &binary), 0);
  CoreArguments arguments = {};
  uint64_t word = 0;
  arguments.args = &word;
  arguments.args_size = sizeof word;
  CHECK_EQUAL(
      functions.rtKernelLaunchWithHandleV2(binary, 0, 2, &arguments, nullptr, stream, nullptr), 0);
  CHECK_CONTAINS(fake.control.findings(), "error: probe: rtKernelLaunchWithHandleV2");
  CHECK_CONTAINS(fake.control.findings(), "error: batch");
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
