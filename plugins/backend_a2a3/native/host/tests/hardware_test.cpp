// What the host learns of the chip, and tells the device library.
#include "life/aicpu_device.hpp"
#include "scenario.hpp"

using namespace pto::a2a3;
using namespace pto::a2a3::cann;

namespace {

constexpr uint64_t kRegisters = 0x2000'0000'0000;  // of device 0 of the fake driver

void open(Card& card, const CardOptions& options = {}) {
  pto_error error = {};
  if (card.open(options, &error) != PTO_OK) check::fail(__FILE__, __LINE__, error.message);
}

TEST(the_hal_receives_the_number_of_the_driver) {
  vendor::Fake& fake = vendor::fresh();
  setenv("ASCEND_RT_VISIBLE_DEVICES", "2,3", 1);
  Card card(fake.driver);
  open(card, {1, "2,3", {}});
  Hardware hardware = {};
  pto_error error = {};
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_OK);
  CHECK_EQUAL(hardware.registers, kRegisters + 3 * PTO_A2A3_REGISTER_BYTES);
  CHECK(hardware.clusters.has_value());
  card.close();
  Card unaware(fake.driver);
  open(unaware, {0, "", {}});
  CHECK_EQUAL(read_hardware(unaware, &hardware, &error), PTO_ERROR_LOAD);
  CHECK(!hardware.clusters.has_value());
  unaware.close();
  unsetenv("ASCEND_RT_VISIBLE_DEVICES");
}

// Keeps what the host tells the device library about the chip. It does not answer, so the open
// fails.
struct Description {
  static int32_t run(void* context, const pto_fake_launch* launch) {
    auto& self = *static_cast<Description*>(context);
    const auto* command =
        static_cast<const pto_a2a3_launch*>(self.control.view(launch->arguments, launch->bytes));
    const void* input = self.control.view(command->input, sizeof self.device);
    if (input == nullptr) return 0;
    std::memcpy(&self.device, input, sizeof self.device);
    std::memset(self.control.view(self.device.log, sizeof(pto_a2a3_log)), 0, sizeof(pto_a2a3_log));
    return 0;
  }
  const vendor::Control& control;
  pto_a2a3_device device = {};
};

pto_a2a3_device describe(vendor::Fake& fake, const CardOptions& options) {
  Description seen{fake.control};
  fake.control.set_program(Description::run, &seen);
  Card card(fake.driver);
  open(card, options);
  AicpuDevice aicpu(card);
  AicpuOptions settings;
  settings.pool_bytes = 1 << 20;
  const DeviceImages images = {scenario::kDispatcher, scenario::kInner, scenario::kCores};
  pto_error error = {};
  CHECK_EQUAL(aicpu.open(images, settings, &error), PTO_ERROR_INTERNAL);
  CHECK_CONTAINS(error.message, "without an answer");
  card.close();
  CHECK_EQUAL(fake.control.findings(), std::string());
  return seen.device;
}

TEST(the_processors_of_one_cluster_come_first) {
  const pto_a2a3_device device = describe(vendor::fresh(), {});
  const std::vector<uint16_t> cpus(device.cpus, device.cpus + device.num_cpus);
  CHECK(cpus == (std::vector<uint16_t>{4, 5, 6, 7, 2, 3}));
}

// Two processes with one visible device each would share the files of "device 0".
TEST(files_on_the_device_have_the_number_of_the_driver) {
  vendor::Fake& fake = vendor::fresh();
  setenv("ASCEND_RT_VISIBLE_DEVICES", "2", 1);
  CHECK_EQUAL(describe(fake, {0, "2", {}}).device_id, 2);
  unsetenv("ASCEND_RT_VISIBLE_DEVICES");
}

TEST(without_an_answer_about_clusters_all_of_them_are_possible) {
  const pto_a2a3_device masked = describe(vendor::fresh(), {});
  const pto_a2a3_device unknown = describe(vendor::fresh("clusters=0"), {});
  for (uint32_t core = 0; core < PTO_A2A3_PHYSICAL_CORES; ++core) {
    const uint64_t page = kRegisters + pto_a2a3_page_offset(core);
    CHECK_EQUAL(unknown.registers[core], page);
    const bool is_masked = pto_a2a3_page_offset(core) / PTO_A2A3_CLUSTER_STRIDE == 3;
    CHECK_EQUAL(masked.registers[core], is_masked ? 0 : page);
  }
}

TEST(only_an_impossible_length_of_the_registers_is_refused) {
  const pto_a2a3_device whole = describe(vendor::fresh(), {});
  const pto_a2a3_device part = describe(vendor::fresh("register_bytes=4096"), {});
  CHECK(std::memcmp(whole.registers, part.registers, sizeof whole.registers) == 0);
  vendor::Fake& fake = vendor::fresh("register_bytes=0");
  Card card(fake.driver);
  open(card);
  Hardware hardware = {};
  pto_error error = {};
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "halMemCtl returned the address 0x200000000000 and 0 bytes");
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
