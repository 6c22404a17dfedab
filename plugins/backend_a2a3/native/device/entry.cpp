// The AICPU entry: one launch is one command of the host.
#include <elf.h>
#include <unistd.h>

#include <cstring>

#include "device/device.hpp"
#include "device/error.hpp"

namespace pto::a2a3 {
namespace {

#if defined(__aarch64__)
constexpr uint32_t kMachine = EM_AARCH64;
#else
constexpr uint32_t kMachine = EM_X86_64;
#endif

void send(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  answer.command = launch.command;
  answer.machine = kMachine;
  answer.process = static_cast<uint32_t>(getpid());
  answer.error.status = answer.status;
  if (answer.status != PTO_OK) note_error(answer.error.message);
  Aicpu::clean(&answer, sizeof answer);
  Aicpu::order_stores();
  Aicpu::store_flag(&answer.sequence, launch.sequence);
  Aicpu::clean(&answer, PTO_A2A3_LINE);
  Aicpu::order_stores();
}

pto_status create(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  DeviceProgram* device = DeviceProgram::create(launch.input, launch.input_bytes, answer.error);
  answer.handle = reinterpret_cast<uint64_t>(device);
  if (device == nullptr) return answer.error.status;
  answer.capabilities = device->has_planning() ? PTO_A2A3_PLANNING : 0;
  return PTO_OK;
}

pto_status execute(const pto_a2a3_launch& launch, pto_a2a3_status& answer) {
  if (launch.command == PTO_A2A3_INIT) return create(launch, answer);
  if (launch.device == 0) {
    return fail(answer.error, PTO_ERROR_INTERNAL, "command ", launch.command,
                " names no device; send INIT first");
  }
  DeviceProgram& device = *reinterpret_cast<DeviceProgram*>(launch.device);
  switch (launch.command) {
    case PTO_A2A3_QUIT:
      DeviceProgram::destroy(&device);
      return PTO_OK;
    case PTO_A2A3_LOAD:
      return device.load(launch, answer);
    case PTO_A2A3_UNLOAD:
      return device.unload(launch, answer);
    case PTO_A2A3_ATTACH:
      return device.attach(launch, answer);
    case PTO_A2A3_DETACH:
      return device.detach(answer);
    default:
      return fail(answer.error, PTO_ERROR_UNSUPPORTED, "the device library has no command ",
                  launch.command);
  }
}

}  // namespace
}  // namespace pto::a2a3

extern "C" __attribute__((visibility("default"))) uint32_t
pto_a2a3_serve(const pto_a2a3_launch* launch) {
  using namespace pto::a2a3;
  if (launch->magic != PTO_A2A3_MAGIC || launch->version != PTO_A2A3_VERSION ||
      launch->status == 0) {
    note_error("the host and the device library have different versions; install one of both");
    return 1;
  }
  auto& answer = *reinterpret_cast<pto_a2a3_status*>(launch->status);
  if (launch->command == PTO_A2A3_RUN && launch->device != 0) {
    DeviceProgram& device = *reinterpret_cast<DeviceProgram*>(launch->device);
    if (device.run(*launch, answer)) send(*launch, answer);
    return 0;
  }
  clear(answer);
  answer.status = execute(*launch, answer);
  send(*launch, answer);
  return 0;
}
