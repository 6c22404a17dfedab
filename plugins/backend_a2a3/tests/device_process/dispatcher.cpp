// The dispatcher on the device process: it installs the device library.
#include "abi/dispatcher.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "check.hpp"
#include "device_process/driver.hpp"

namespace {

namespace fs = std::filesystem;

constexpr const char* kEntry = "DynTileFwkBackendKernelServerInit";

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A chip whose AICPU has the dispatcher, and whose folder of libraries is empty.
struct Installation {
  Silicon silicon{{"blocks=1", "folder=" PTO_INSTALLED}};
  uint64_t dispatcher = silicon.load(PTO_DISPATCHER);
  const std::string library = bytes_of(PTO_DEVICE_LIBRARY);

  Installation() {
    fs::remove_all(PTO_INSTALLED);
    fs::create_directory(PTO_INSTALLED);
  }

  // Returns the value of the entry.
  uint32_t install(const pto_a2a3_bootstrap_block& block) {
    pto_a2a3_bootstrap_arguments arguments{};
    arguments.block = silicon.upload(block);
    const uint64_t tag = silicon.launch(SILICON_AICPU, dispatcher, kEntry, 1, arguments);
    const silicon_answer end = silicon.wait(tag);
    CHECK_EQUAL(end.kind, uint32_t{SILICON_COMPLETED});
    return end.result;
  }

  pto_a2a3_bootstrap_block block(uint64_t device) {
    pto_a2a3_bootstrap_block block{};
    block.device = device;
    block.library = silicon.upload_file(PTO_DEVICE_LIBRARY, block.library_bytes);
    return block;
  }

  fs::path path(uint64_t device) const {
    char name[PTO_A2A3_LIBRARY_NAME_BYTES];
    pto_a2a3_library_name(name, library.data(), library.size(), device);
    return fs::path(PTO_INSTALLED) / name;
  }
};

size_t installed_files() {
  const fs::directory_iterator files(PTO_INSTALLED);
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(the_dispatcher_installs_the_device_library_under_the_name_that_the_host_computes) {
  Installation chip;
  CHECK_EQUAL(chip.install(chip.block(0)), 0u);
  CHECK_EQUAL(bytes_of(chip.path(0)), chip.library);
  CHECK_EQUAL(chip.path(0).extension(), ".so");
  CHECK_EQUAL(chip.install(chip.block(11)), 0u);
  CHECK_EQUAL(bytes_of(chip.path(11)), chip.library);
  CHECK_EQUAL(installed_files(), size_t{2});
}

// A damaged file can have the length of the library.
TEST(a_file_of_an_earlier_installation_is_always_replaced) {
  Installation chip;
  const fs::path path = chip.path(3);
  for (const size_t length : {size_t{4}, chip.library.size()}) {
    std::ofstream(path, std::ios::binary) << std::string(length, 'x');
    CHECK_EQUAL(chip.install(chip.block(3)), 0u);
    CHECK_EQUAL(bytes_of(path), chip.library);
    CHECK_EQUAL(installed_files(), size_t{1});
  }
}

TEST(the_dispatcher_reports_what_it_cannot_install) {
  Installation chip;
  CHECK_EQUAL(chip.install({}), 2u);
  fs::remove_all(PTO_INSTALLED);
  CHECK_EQUAL(chip.install(chip.block(0)), 3u);
  fs::create_directory(PTO_INSTALLED);
  CHECK_EQUAL(installed_files(), size_t{0});
}

}  // namespace
