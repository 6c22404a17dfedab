#include "life/aicpu.hpp"

#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "abi/dispatcher.h"
#include "error.hpp"

namespace pto::a2a3 {

using namespace cann;

namespace {

constexpr size_t kNameBytes = sizeof(pto_a2a3_bootstrap_arguments::kernel);

// The description of one function, in the form that the runtime reads.
std::string describe(const std::string& operation, const std::string& symbol,
                     const std::string& file) {
  return "{\"" + operation + "\": {\"opInfo\": {\"functionName\": \"" + symbol +
         "\", \"kernelSo\": \"" + file +
         "\", \"opKernelLib\": \"AICPUKernel\", \"computeCost\": \"100\", \"engine\": "
         "\"DNN_VM_AICPU\", \"flagAsync\": \"False\", \"flagPartial\": \"False\", "
         "\"userDefined\": \"False\"}}}\n";
}

// A temporary file with a text; it is removed at the end.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    // mkstemps replaces the six letters before the suffix
    const std::string name = "pto_a2a3_" + std::string(6, 'X') + ".json";
    path_ = (std::filesystem::temp_directory_path() / name).string();
    const int descriptor = mkstemps(path_.data(), 5);
    if (descriptor < 0) return;
    is_written_ = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(descriptor);
  }
  ~TextFile() { unlink(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  const char* path() const { return path_.c_str(); }
  bool is_written() const { return is_written_; }

 private:
  std::string path_;
  bool is_written_ = false;
};

}  // namespace

pto_status AicpuLibrary::install(const BootstrapNames& names, const AicpuImages& images,
                                 pto_error* error) {
  pto_a2a3_bootstrap_block block = {};
  block.dispatcher_bytes = images.dispatcher_bytes;
  block.library_bytes = images.inner_bytes;
  block.device = card_.driver_device();
  uint64_t address = 0;
  pto_status status = upload(images.dispatcher, images.dispatcher_bytes, &block.dispatcher, error);
  if (status == PTO_OK) status = upload(images.inner, images.inner_bytes, &block.library, error);
  if (status == PTO_OK) status = upload(&block, sizeof block, &address, error);
  if (status == PTO_OK) status = start_dispatcher(names, address, error);
  if (status == PTO_OK) status = wait_for_dispatcher(error);
  if (status != PTO_OK) return status;
  char name[PTO_A2A3_LIBRARY_NAME_BYTES];
  pto_a2a3_library_name(name, images.inner, images.inner_bytes, block.device);
  file_ = name;
  return free_blocks(error);
}

pto_status AicpuLibrary::upload(const void* bytes, size_t count, uint64_t* address,
                                pto_error* error) {
  const pto_status status = card_.memory().allocate(count, address, error);
  if (status != PTO_OK) return status;
  blocks_.push_back(*address);
  return card_.memory().copy_in(*address, bytes, count, error);
}

// Frees the other blocks also after a failure, and returns the first one.
pto_status AicpuLibrary::free_blocks(pto_error* error) {
  pto_status status = PTO_OK;
  for (const uint64_t block : blocks_) {
    const pto_status freed = card_.memory().free(block, status == PTO_OK ? error : nullptr);
    if (status == PTO_OK) status = freed;
  }
  blocks_.clear();
  return status;
}

pto_status AicpuLibrary::start_dispatcher(const BootstrapNames& names, uint64_t block,
                                          pto_error* error) {
  for (const std::string& name : {names.kernel, names.library, names.operation}) {
    if (name.size() < kNameBytes) continue;
    return fail(error, PTO_ERROR_USAGE, "the bootstrap name %s has %zu characters; at most %zu fit",
                name.c_str(), name.size(), kNameBytes - 1);
  }
  pto_a2a3_bootstrap_arguments arguments = {};
  arguments.block = block;
  std::memcpy(arguments.kernel, names.kernel.data(), names.kernel.size());
  std::memcpy(arguments.library, names.library.data(), names.library.size());
  std::memcpy(arguments.operation, names.operation.data(), names.operation.size());
  AicpuArguments described = {};
  described.args = &arguments;
  described.args_size = sizeof arguments;
  described.kernel_name_offset = offsetof(pto_a2a3_bootstrap_arguments, kernel);
  described.so_name_offset = offsetof(pto_a2a3_bootstrap_arguments, library);
  CardSession& session = card_.session();
  const auto lock = session.lock();
  const pto_status status = session.enter(error);
  if (status != PTO_OK) return status;
  return session.call(error, session.functions().rtAicpuKernelLaunchExWithArgs, kAicpuKfc,
                      names.operation.c_str(), uint32_t{1}, &described, nullptr,
                      card_.stream(StreamKind::kAicpu), uint32_t{0});
}

pto_status AicpuLibrary::wait_for_dispatcher(pto_error* error) {
  const uint32_t limit_s = card_.limits().synchronise_s;
  const pto_status status = card_.wait(int64_t{limit_s} * 1'000'000'000, error);
  if (status != PTO_PENDING) return status;
  return fail(error, PTO_ERROR_TIMEOUT,
              "the dispatcher did not end on the AICPU within %u s (a2a3.synchronise_timeout_s); "
              "reset the card",
              limit_s);
}

pto_status AicpuLibrary::find(const std::string& symbol, Handle* function, pto_error* error) {
  const std::string operation = symbol + "_" + file_;
  const TextFile description(describe(operation, symbol, file_));
  if (!description.is_written()) {
    return fail(error, PTO_ERROR_LOAD, "the file %s cannot be written; free space in its folder",
                description.path());
  }
  LoadOption option = {};
  option.id = kLoadCpuKernelMode;
  option.value[0] = kCpuKernelDescriptionOnly;
  const LoadSettings settings = {&option, 1};
  CardSession& session = card_.session();
  const auto lock = session.lock();
  pto_status status = session.enter(error);
  if (status != PTO_OK) return status;
  Handle binary = nullptr;
  status = session.call(error, session.functions().rtsBinaryLoadFromFile, description.path(),
                        &settings, &binary);
  if (status != PTO_OK) return status;
  binaries_.push_back(binary);
  return session.call(error, session.functions().rtsFuncGetByName, binary, operation.c_str(),
                      function);
}

pto_status AicpuLibrary::launch(Handle function, uint32_t threads, const void* arguments,
                                uint32_t bytes, pto_error* error) {
  CardSession& session = card_.session();
  const auto lock = session.lock();
  const pto_status status = session.enter(error);
  if (status != PTO_OK) return status;
  const auto* start = static_cast<const uint8_t*>(arguments);
  std::vector<uint8_t> copied(start, start + bytes);
  CpuArguments described = {};
  described.base.args = copied.data();
  described.base.args_size = bytes;
  return session.call(error, session.functions().rtsLaunchCpuKernel, function, threads,
                      card_.stream(StreamKind::kAicpu), nullptr, &described);
}

pto_status AicpuLibrary::unload(pto_error* error) {
  pto_status status = free_blocks(error);
  CardSession& session = card_.session();
  const auto lock = session.lock();
  for (const Handle binary : binaries_) {
    pto_error* const failure = status == PTO_OK ? error : nullptr;
    pto_status unloaded = session.enter(failure);
    if (unloaded == PTO_OK) {
      unloaded = session.call(failure, session.functions().rtsBinaryUnload, binary);
    }
    if (status == PTO_OK) status = unloaded;
  }
  binaries_.clear();
  return status;
}

}  // namespace pto::a2a3
