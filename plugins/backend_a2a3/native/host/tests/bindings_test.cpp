// The load of the vendor's libraries, and the check of every code.
#include <sys/wait.h>

#include <map>
#include <vector>

#include "cann/driver.hpp"
#include "vendor.hpp"

using namespace pto::a2a3::cann;

namespace {

pto_error load(const DriverOptions& options) {
  CannDriver driver;
  pto_error error = {};
  CHECK_EQUAL(driver.load(options, &error), error.status);
  return error;
}

TEST(the_fake_driver_is_labelled_and_needs_permission) {
  vendor::Fake& fake = vendor::fresh();
  CHECK(fake.driver.is_fake());
  CHECK_EQUAL(std::string(fake.driver.label()), std::string("fake device"));
  DriverOptions options = vendor::options(vendor::kFolders / "fake");
  options.is_fake = false;
  const pto_error error = load(options);
  CHECK_EQUAL(error.status, PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "fake driver of this plugin's tests, not a card");
}

TEST(the_older_name_of_a_library_is_found) {
  CHECK_EQUAL(load(vendor::options(vendor::kFolders / "old")).status, PTO_OK);
}

TEST(a_missing_library_is_named_with_the_remedy) {
  const pto_error absent = load(vendor::options("/nonexistent"));
  CHECK_EQUAL(absent.status, PTO_ERROR_LOAD);
  CHECK_CONTAINS(absent.message, "libacl_rt.so");
  CHECK_CONTAINS(absent.message, "Correct a2a3.library_folder (PTO_A2A3_LIBRARY_FOLDER)");
  const pto_error torn = load(vendor::options(vendor::kFolders / "torn"));
  CHECK_EQUAL(torn.status, PTO_ERROR_LOAD);
  CHECK_CONTAINS(torn.message, "libruntime.so");
}

TEST(link_stubs_are_refused_with_their_path) {
  DriverOptions options = vendor::options(vendor::kFolders / "stubs");
  options.is_fake = false;
  const pto_error error = load(options);
  CHECK_EQUAL(error.status, PTO_ERROR_LOAD);
  CHECK_EQUAL(error.vendor_code, 100039);
  CHECK_CONTAINS(error.message, "stubs/libacl_rt.so");
  CHECK_CONTAINS(error.message, "devlib");
}

// Each required function is hidden once; each optional one once, in a call.
TEST(a_missing_function_is_named) {
  constexpr bool required = true, optional = false;
#define PTO_CASE(library, need, result, name, parameters)          \
  {                                                                \
    const vendor::PatchedFolder folder(#name);                     \
    CannDriver driver;                                             \
    pto_error error = {};                                          \
    DriverOptions options = vendor::options(folder.path);          \
    options.version = "8.3";                                       \
    driver.load(options, &error);                                  \
    CHECK_EQUAL(error.status, need ? PTO_ERROR_LOAD : PTO_OK);     \
    if (need) CHECK_CONTAINS(error.message, "no function " #name); \
    CHECK(driver.functions().name.address == nullptr);             \
  }
  PTO_A2A3_FUNCTIONS(PTO_CASE)
#undef PTO_CASE
}

TEST(a_call_of_a_missing_function_is_unsupported) {
  const vendor::PatchedFolder folder("rtsBinaryUnload");
  CannDriver driver;
  pto_error error = {};
  CHECK_EQUAL(driver.load(vendor::options(folder.path), &error), PTO_OK);
  CHECK_EQUAL(driver.call(&error, driver.functions().rtsBinaryUnload, nullptr),
              PTO_ERROR_UNSUPPORTED);
  CHECK_CONTAINS(error.message, "CANN 8.3 has no function rtsBinaryUnload");
}

TEST(versions_are_read_and_replaced_by_the_setting) {
  CHECK(read_version("8.1.RC1") == (Version{8, 1}));
  CHECK(read_version("9.1.0") == (Version{9, 1}));
  CHECK(read_version("10.2") == (Version{10, 2}));
  for (const char* text : {"", "8", "8.", "x.1", "8.1RC1", ".1", "8..1"}) {
    CHECK(read_version(text) == Version{});
  }
  vendor::Fake& fake = vendor::fresh();
  CHECK(fake.driver.version() == (Version{8, 3}));
  CHECK_EQUAL(fake.control.configure("version=unreleased"), 0);
  const pto_error error = load(vendor::options(vendor::kFolders / "fake"));
  CHECK_CONTAINS(error.message, "\"unreleased\". Set PTO_A2A3_CANN_VERSION");
  DriverOptions options = vendor::options(vendor::kFolders / "fake");
  options.version = "8.5";
  CHECK_EQUAL(load(options).status, PTO_OK);
  CHECK_EQUAL(fake.control.configure("version=8.3.RC1"), 0);
}

TEST(bootstrap_names_belong_to_releases_and_can_be_replaced) {
  BootstrapNames names;
  pto_error error = {};
  for (const Version version : {Version{8, 1}, Version{8, 3}, Version{9, 1}}) {
    CHECK_EQUAL(find_bootstrap(version, {}, &names, &error), PTO_OK);
    CHECK_EQUAL(names.kernel, std::string("DynTileFwkKernelServerInit"));
  }
  for (const Version version : {Version{8, 0}, Version{9, 2}}) {
    CHECK_EQUAL(find_bootstrap(version, {"a", "b", ""}, &names, &error), PTO_ERROR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "set a2a3.bootstrap_operation");
    CHECK_EQUAL(find_bootstrap(version, {"a", "b", "c"}, &names, &error), PTO_OK);
  }
  CHECK_EQUAL(find_bootstrap({8, 3}, {"", "b", ""}, &names, &error), PTO_OK);
  CHECK_EQUAL(names.kernel, std::string("b"));
  CHECK_EQUAL(names.library, std::string("libaicpu_extend_kernels.so"));
}

// Every code of the table, on its own.
TEST(every_code_becomes_its_status_and_is_named_in_the_message) {
  vendor::Fake& fake = vendor::fresh();
  uint32_t count = 0;
  const CodeEntry* table = code_table(&count);
  for (uint32_t index = 0; index < count; ++index) {
    const CodeEntry& entry = table[index];
    CHECK(index == 0 || table[index - 1].code < entry.code);
    CHECK(find_code(entry.code) == &entry);
    pto_error error = {};
    fake.control.fail("aclrtGetDeviceCount", 1, entry.code, 0);
    uint32_t devices = 0;
    const auto& function = fake.driver.functions().aclrtGetDeviceCount;
    CHECK_EQUAL(fake.driver.call(&error, function, &devices), entry.status);
    if (entry.status == PTO_OK || entry.status == PTO_PENDING) {
      CHECK_EQUAL(error.status, PTO_OK);
      continue;
    }
    CHECK_EQUAL(error.vendor_code, entry.code);
    CHECK_CONTAINS(error.message, "aclrtGetDeviceCount failed with code " +
                                      std::to_string(entry.code) + ": " + entry.meaning);
    CHECK_CONTAINS(error.message, entry.advice);
    if (entry.code == kLinkStub) continue;
    CHECK_CONTAINS(error.message, "The fake driver reports: \"aclrtGetDeviceCount: EE" +
                                      std::to_string(entry.code));
  }
}

// The fake driver includes the declarations of the plugin, so a wrong value needs a test of its
// own.
TEST(constants_have_the_values_of_the_vendor) {
  CHECK_EQUAL(int{kHostToHost}, 0);
  CHECK_EQUAL(int{kHostToDevice}, 1);
  CHECK_EQUAL(int{kDeviceToHost}, 2);
  CHECK_EQUAL(int{kDeviceToDevice}, 3);
  CHECK_EQUAL(int{kHugeFirst}, 0);
  CHECK_EQUAL(int{kHbmMemory}, 1);
  CHECK_EQUAL(int{kCubeCores}, 0);
  CHECK_EQUAL(int{kVectorCores}, 1);
  CHECK_EQUAL(int{kStreamComplete}, 0);
  CHECK_EQUAL(int{kStreamNotReady}, 1);
  CHECK_EQUAL(kMagicAiCore, 0x43554245u);
  CHECK_EQUAL(int{kBatchSchedule}, 1);
  CHECK_EQUAL(kAicpuKfc, 5u);
  CHECK_EQUAL(kLoadCpuKernelMode, 3);
  CHECK_EQUAL(kCpuKernelDescriptionOnly, 0u);
  CHECK_EQUAL(kHalAddressMap, 0);
  CHECK_EQUAL(kHalCoreRegisters, 2u);
  CHECK_EQUAL(kHalModuleAicpu, 1);
  CHECK_EQUAL(kHalModuleAicore, 4);
  CHECK_EQUAL(kHalInfoOccupy, 8);
  CHECK_EQUAL(kHalTryAgain, 13);
  CHECK_EQUAL(kHalWrongDevice, 42);
}

// The codes by what follows from them, in the order of the table. A device with a code of the last
// lists needs a forced reset.
TEST(codes_have_the_consequences_of_the_vendor) {
  const std::map<pto_status, std::vector<Code>> usable = {
      {PTO_OK, {100002, 100037}},
      {PTO_PENDING, {507004}},
      {PTO_ERROR_INTERNAL, {100000, 100001, 107000, 107002, 107003, 107017}},
      {PTO_ERROR_USAGE, {107001}},
      {PTO_ERROR_UNSUPPORTED, {207000}},
      {PTO_ERROR_LOAD, {100039, 207004, 507027, 507028}},
      {PTO_ERROR_MEMORY, {200000, 207001, 207018}},
      {PTO_ERROR_CAPACITY, {207005, 207008}},
      {PTO_ERROR_TIMEOUT, {107019, 107020, 507046, 507047}},
  };
  const std::map<pto_status, std::vector<Code>> lost = {
      {PTO_ERROR_TIMEOUT, {507014, 507017, 507034}},
      {PTO_ERROR_KERNEL, {507015, 507016, 507035, 507036, 507042, 507043, 507044, 507045}},
      {PTO_ERROR_LOST,
       {107022, 507000, 507010, 507011, 507018, 507053, 507054, 507899, 507900, 507901, 507902}},
  };
  size_t codes = 0;
  for (const bool is_lost : {false, true}) {
    for (const auto& [status, list] : is_lost ? lost : usable) {
      for (const Code code : list) {
        const CodeEntry* entry = find_code(code);
        if (entry == nullptr) check::fail(__FILE__, __LINE__, std::to_string(code));
        CHECK_EQUAL(entry->status, status);
        CHECK_EQUAL(entry->is_poison, is_lost);
      }
      codes += list.size();
    }
  }
  uint32_t count = 0;
  code_table(&count);
  CHECK_EQUAL(size_t{count}, codes);
}

TEST(an_unknown_code_is_not_interpreted) {
  vendor::Fake& fake = vendor::fresh();
  for (const int32_t code : {1, 107099, 207099, 507777, -1}) {
    pto_error error = {};
    uint32_t devices = 0;
    fake.control.fail("aclrtGetDeviceCount", 1, code, 0);
    fake.driver.call(&error, fake.driver.functions().aclrtGetDeviceCount, &devices);
    CHECK_EQUAL(error.status, PTO_ERROR_INTERNAL);
    CHECK_CONTAINS(error.message, std::to_string(code) + ", which is not in the plugin's table");
    CHECK(find_code(code) == nullptr);
    CHECK_EQUAL(is_poison(code), code == 507777);
  }
}

TEST(codes_of_the_hal_have_their_own_meaning) {
  vendor::Fake& fake = vendor::fresh();
  pto_error error = {};
  CHECK_EQUAL(fake.driver.check_hal("halMemCtl", 42, 3, &error), PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "code 42 for device 3 of the driver");
  CHECK_CONTAINS(error.message, "ASCEND_RT_VISIBLE_DEVICES");
  CHECK_EQUAL(fake.driver.check_hal("halMemCtl", kLinkStub, 3, &error), PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "link stub");
}

TEST(logical_numbers_count_the_visible_devices) {
  uint32_t number = 0;
  pto_error error = {};
  CHECK_EQUAL(find_driver_device("", 3, &number, &error), PTO_OK);
  CHECK_EQUAL(number, 3u);
  CHECK_EQUAL(find_driver_device("1,3,12", 2, &number, &error), PTO_OK);
  CHECK_EQUAL(number, 12u);
  CHECK_EQUAL(find_driver_device("1,3", 2, &number, &error), PTO_ERROR_USAGE);
  CHECK_CONTAINS(error.message, "the devices are 0 to 1");
  for (const char* text : {"1, 3", "3,1", "1,1", "a", "1,", ",", "-1"}) {
    CHECK_EQUAL(find_driver_device(text, 0, &number, &error), PTO_ERROR_USAGE);
    CHECK_CONTAINS(error.message, "ascending device numbers");
  }
  CHECK_EQUAL(find_driver_device("0", -1, &number, &error), PTO_ERROR_USAGE);
}

TEST(a_forked_process_is_refused) {
  vendor::Fake& fake = vendor::fresh();
  const pid_t child = fork();
  if (child == 0) {
    pto_error error = {};
    _exit(fake.driver.check_process(&error) == PTO_ERROR_USAGE ? 7 : 1);
  }
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(WEXITSTATUS(status), 7);
  pto_error error = {};
  CHECK_EQUAL(fake.driver.check_process(&error), PTO_OK);
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
