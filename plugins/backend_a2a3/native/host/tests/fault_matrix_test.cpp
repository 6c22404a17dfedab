// Every call of a run fails once for each class of cause: at once, and launches also later.
//
// After each failure: the error names the call and the code, nothing is leaked, no rule of the
// vendor is broken, and the next use of the device is right.
#include <chrono>
#include <map>
#include <set>

#include "scenario.hpp"

using namespace pto::a2a3;
using namespace pto::a2a3::cann;

namespace {

// One code for each class of cause that a call can return; and one that is unknown.
constexpr Code kCodes[] = {100000, 107001, 207001, 207008, 207000, 507014, 507015, 507027,
                           507018, 507899, 507010, 507053, 107019, 599999, 199999};

const char* const kLaunches[] = {"rtKernelLaunchWithHandleV2", "rtAicpuKernelLaunchExWithArgs",
                                 "rtsLaunchCpuKernel"};

// Their failures leave something behind, because they are what releases it.
const std::set<std::string> kReleases = {"aclrtFree", "aclrtDestroyStream", "rtsBinaryUnload",
                                         "aclrtResetDevice"};

// Their number depends on the time that streams take. The first calls stand for all.
const std::map<std::string, uint64_t> kRepeated = {{"aclrtStreamQuery", 3},
                                                   {"aclrtSetCurrentContext", 11}};

// If one of these fails while a launch runs, its end is unknown, so the device becomes unusable.
const std::set<std::string> kWaits = {"aclrtStreamQuery", "aclrtSynchronizeStreamWithTimeout",
                                      "aclrtSetCurrentContext"};

// Functions of the load, tested below, and functions without a code.
const std::set<std::string> kOutside = {"aclInit",
                                        "aclGetRecentErrMsg",
                                        "aclrtGetSocName",
                                        "aclrtGetDeviceCount",
                                        "halMemCtl",
                                        "aclrtResetDeviceForce",
                                        "halGetDeviceInfo",
                                        "aclrtSynchronizeDeviceWithTimeout",
                                        "aclsysGetCANNVersion",
                                        "halGetDeviceInfoByBuff"};

std::vector<std::string> function_names() {
  std::vector<std::string> names;
#define PTO_NAME(library, need, result, name, parameters) names.push_back(#name);
  PTO_A2A3_FUNCTIONS(PTO_NAME)
#undef PTO_NAME
  return names;
}

// One planned failure.
struct Cell {
  std::string function;
  uint32_t nth = 0;
  Code code = 0;
  bool is_late = false;
};

void require(bool condition, const Cell& cell, const std::string& what) {
  if (condition) return;
  check::fail(__FILE__, __LINE__,
              cell.function + ", call " + std::to_string(cell.nth) + ", code " +
                  std::to_string(cell.code) + (cell.is_late ? ", late: " : ": ") + what);
}

// Uses the card once without a planned failure.
void use_without_failure(vendor::Fake& fake, Card& card, const Cell& before = {}) {
  scenario::CardDevice device(fake.control);
  pto_error error = {};
  const pto_status status = scenario::Scenario(card).run({}, &error);
  require(status == PTO_OK, before, std::string("the next use: ") + error.message);
  card.close();
  const std::string findings = fake.control.findings();
  require(findings.empty(), before, "after the next use: " + findings);
}

std::map<std::string, uint64_t> calls_of_a_run(vendor::Fake& fake) {
  Card card(fake.driver);
  std::map<std::string, uint64_t> counts;
  use_without_failure(fake, card);
  for (const std::string& name : function_names()) counts[name] = fake.control.calls(name.c_str());
  return counts;
}

// Returns the findings that a failed call of `function` must not cause.
std::string unexpected_findings(const vendor::Fake& fake, const std::string& function) {
  std::string unexpected;
  std::string rest = fake.control.findings();
  while (!rest.empty()) {
    const std::string line = rest.substr(0, rest.find('\n'));
    rest.erase(0, line.size() + 1);
    if (!line.starts_with("leak") || !kReleases.contains(function)) unexpected += line + "\n";
  }
  return unexpected;
}

void check_error(const pto_error& error, const Cell& cell) {
  const CodeEntry* entry = find_code(cell.code);
  const std::string text = " failed with code " + std::to_string(cell.code);
  const std::string reporter = cell.is_late ? "aclrtStreamQuery" : cell.function;
  require(error.status == (entry != nullptr ? entry->status : PTO_ERROR_INTERNAL), cell, "status");
  require(error.vendor_code == cell.code, cell, "vendor_code");
  require(std::string(error.message).starts_with(error.vendor_function), cell, "vendor_function");
  // A late cascade can also appear at the next call, which cannot find another cause.
  const bool is_cascade = entry != nullptr && entry->cause == Cause::kCascade;
  const std::string message = error.message;
  require(cell.is_late && is_cascade ? message.find(text) != std::string::npos
                                     : message.starts_with(reporter + text),
          cell, message);
}

// Uses the card with a planned failure, and closes it.
void use(vendor::Fake& fake, Card& card, const Cell& cell) {
  scenario::CardDevice device(fake.control);
  device.has_cores = !cell.is_late;
  fake.control.fail(cell.function.c_str(), cell.nth, cell.code, cell.is_late);
  pto_error error = {};
  scenario::Scenario(card).run({}, &error);
  const bool is_poisoned = card.session().is_poisoned();
  const bool is_open = card.session().is_selected();
  card.close();
  if (error.status == PTO_OK) {
    // Only the calls of close() have no error record.
    require(cell.function == "aclrtDestroyStream" || cell.function == "aclrtResetDevice" ||
                cell.function == "aclrtSetCurrentContext",
            cell, "no error");
  } else {
    check_error(error, cell);
    const bool is_of_wait = cell.is_late || kWaits.contains(cell.function);
    const bool is_lost = is_poison(cell.code) || (is_poisoned && is_of_wait);
    require(is_poisoned == (is_open && is_lost), cell, "poison");
  }
  const std::string unexpected = unexpected_findings(fake, cell.function);
  require(unexpected.empty(), cell, unexpected);
}

void fail_once(const Cell& cell) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  use(fake, card, cell);
  if (!kReleases.contains(cell.function)) use_without_failure(fake, card, cell);
}

TEST(every_bound_function_is_used) {
  const auto counts = calls_of_a_run(vendor::fresh());
  for (const auto& [name, count] : counts) {
    if (!kOutside.contains(name) && count == 0) check::fail(__FILE__, __LINE__, name);
  }
}

TEST(each_call_fails_once_for_each_class_of_cause) {
  const auto counts = calls_of_a_run(vendor::fresh());
  const auto start = std::chrono::steady_clock::now();
  uint32_t cells = 0;
  for (const auto& [name, count] : counts) {
    if (kOutside.contains(name)) continue;
    const auto repeated = kRepeated.find(name);
    const uint64_t most = repeated != kRepeated.end() ? repeated->second : count;
    for (uint32_t nth = 1; nth <= most; ++nth) {
      for (const Code code : kCodes) {
        fail_once({name, nth, code, false});
        ++cells;
      }
    }
  }
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  std::printf("  %u failures at once in %.1f s\n", cells, used.count());
}

TEST(each_launch_fails_later_for_each_class_of_cause) {
  for (const char* name : kLaunches) {
    for (const Code code : kCodes) fail_once({name, 1, code, true});
  }
}

TEST(the_load_fails_with_the_code_of_its_calls) {
  vendor::Fake& fake = vendor::fresh();
  for (const char* name : {"aclInit", "aclsysGetCANNVersion"}) {
    for (const Code code : kCodes) {
      fake.control.fail(name, 1, code, 0);
      CannDriver driver;
      pto_error error = {};
      CHECK_EQUAL(driver.load(vendor::options(vendor::kFolders / "fake"), &error), error.status);
      check_error(error, {name, 1, code, false});
    }
  }
}

TEST(the_hal_is_asked_again_only_when_it_is_busy) {
  vendor::Fake& fake = vendor::fresh();
  Card card(fake.driver);
  pto_error error = {};
  Hardware hardware = {};
  CHECK_EQUAL(card.open({}, &error), PTO_OK);
  for (int busy = 0; busy < 3; ++busy) fake.control.fail("halMemCtl", 1, kHalTryAgain, 0);
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_OK);
  CHECK_EQUAL(fake.control.calls("halMemCtl"), 4u);
  for (int busy = 0; busy < 4; ++busy) fake.control.fail("halMemCtl", 1, kHalTryAgain, 0);
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "halMemCtl failed with code 13 for device 0 of the driver");
  fake.control.fail("halMemCtl", 1, kHalWrongDevice, 0);
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_ERROR_LOAD);
  fake.control.fail("halGetDeviceInfo", 1, kHalWrongDevice, 0);
  CHECK_EQUAL(read_hardware(card, &hardware, &error), PTO_ERROR_LOAD);
  CHECK_CONTAINS(error.message, "halGetDeviceInfo failed with code 42");
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
