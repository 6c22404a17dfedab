// One use of a card from its opening to its end, as a list of steps.
#pragma once

#include <atomic>
#include <cstring>

#include "life/aicpu.hpp"
#include "vendor.hpp"

namespace scenario {

using namespace pto::a2a3;

inline const std::string kDispatcher =
    std::string("\177ELF") +
    "StaticTileFwkBackendKernelServer DynTileFwkBackendKernelServerInit "
    "DynTileFwkBackendKernelServer";
inline const std::string kInner = "\177ELF of the inner library";
inline const std::string kCores = "code of the cores";

inline AicpuImages images() {
  return {kDispatcher.data(), kDispatcher.size(), kInner.data(), kInner.size()};
}

// What the launches carry: the AICPU adds one to each byte of a block.
struct Arguments {
  uint64_t address;
  uint64_t bytes;
};

constexpr size_t kBytes = 1000;

inline bool is_given_up(const pto_fake_launch& launch) {
  return __atomic_load_n(launch.stop, __ATOMIC_RELAXED) != 0;
}

// The device's part: the AICPU does the work when the cores have started.
struct CardDevice {
  explicit CardDevice(const vendor::Control& control) : control(control) {
    control.set_program(run, this);
  }

  static int32_t run(void* context, const pto_fake_launch* launch) {
    auto& device = *static_cast<CardDevice*>(context);
    if (launch->is_core) {
      device.cores_have_started = true;
      return 0;
    }
    while (device.has_cores && !device.cores_have_started && !is_given_up(*launch)) usleep(50);
    if (is_given_up(*launch)) return 0;
    const auto* arguments =
        static_cast<const Arguments*>(device.control.view(launch->arguments, sizeof(Arguments)));
    if (arguments == nullptr) return 0;  // a forced reset has freed the memory
    auto* bytes = static_cast<uint8_t*>(device.control.view(arguments->address, arguments->bytes));
    if (bytes == nullptr) return 0;
    for (uint64_t index = 0; index < arguments->bytes; ++index) ++bytes[index];
    device.cores_have_started = false;
    return 0;
  }

  const vendor::Control& control;
  bool has_cores = true;  // false: the launch on the cores fails, so the AICPU must not wait
  std::atomic<bool> cores_have_started{false};
};

// Runs all steps; stops at the first failure. The card is open afterwards if it was opened.
class Scenario {
 public:
  explicit Scenario(Card& card) : card_(card), aicpu_(card) {}

  pto_status run(const CardOptions& options, pto_error* error) {
    pto_status status = card_.open(options, error);
    if (status == PTO_OK) status = prepare(error);
    if (status == PTO_OK) status = launch(error);
    if (status == PTO_OK) status = finish(error);
    if (status != PTO_OK) release();
    return status;
  }

  pto_status prepare(pto_error* error) {
    size_t unused = 0, total = 0;
    pto_status status = card_.memory().usage(&unused, &total, error);
    if (status == PTO_OK) status = card_.memory().allocate(kBytes, &block_, error);
    if (status == PTO_OK) status = card_.memory().fill(block_, 7, kBytes, error);
    if (status == PTO_OK) status = card_.memory().copy_in(block_, "abc", 3, error);
    Hardware hardware = {};
    if (status == PTO_OK) status = read_hardware(card_, &hardware, error);
    cann::BootstrapNames names;
    if (status == PTO_OK) status = cann::find_bootstrap({8, 3}, {}, &names, error);
    if (status == PTO_OK) status = aicpu_.install(names, images(), error);
    if (status == PTO_OK) status = aicpu_.find("pto_serve", &function_, error);
    if (status == PTO_OK) {
      status = card_.register_cores(kCores.data(), kCores.size(), &binary_, error);
    }
    return status == PTO_OK ? card_.renew_core_stream(error) : status;
  }

  pto_status launch(pto_error* error) {
    const Arguments arguments = {block_, kBytes};
    pto_status status =
        card_.launch_cores(binary_, card_.blocks(), &arguments, sizeof arguments, error);
    if (status == PTO_OK) {
      status = aicpu_.launch(function_, 6, &arguments, sizeof arguments, error);
    }
    return status == PTO_OK ? card_.wait(int64_t{20} * 1000 * 1000 * 1000, error) : status;
  }

  pto_status finish(pto_error* error) {
    uint8_t bytes[kBytes];
    pto_status status = card_.memory().copy_out(bytes, block_, kBytes, error);
    if (status == PTO_OK) {
      CHECK_EQUAL(std::memcmp(bytes, "bcd", 3), 0);
      CHECK_EQUAL(int{bytes[kBytes - 1]}, 8);
      status = aicpu_.unload(error);
    }
    if (status != PTO_OK) return status;
    status = card_.memory().free(block_, error);
    if (status == PTO_OK) block_ = 0;
    return status;
  }

  // Frees what a failed run left. On an unusable device the calls are refused.
  void release() {
    card_.wait(int64_t{20} * 1000 * 1000 * 1000, nullptr);
    if (block_ != 0) card_.memory().free(block_, nullptr);
    block_ = 0;
    aicpu_.unload(nullptr);
  }

 private:
  Card& card_;
  AicpuLibrary aicpu_;
  uint64_t block_ = 0;
  cann::Handle function_ = nullptr;
  cann::Handle binary_ = nullptr;
};

}  // namespace scenario
