// Every call of a device's life fails once, from open() to close() of the backend table.
// Arguments: the build folder of runtime_hbg, and optionally the name of a test.
//
// The driver fails a call with a code after which the device works, or with one that needs a forced
// reset. Each call of the table ends, the first error states the call and the code, nothing is
// leaked, no rule of the vendor is broken, and the next use of the device is right.
#include <dlfcn.h>

#include <chrono>
#include <map>
#include <set>

#include "device_run.hpp"
#include "pto/abi/backend.h"

using namespace device_run;

namespace {

// A code after which the device works, the consequence of another failure, and a lost device.
const std::vector<int32_t> kCodes = {207001, 507899, 507010};
const std::vector<int32_t> kHalCodes = {3, 42};  // the codes of the HAL are another list
const char* const kVariants[] = {"host_build_graph", "aicpu_build_graph"};

// Their failures leave something behind, because they are what releases it.
const std::set<std::string> kReleases = {"aclrtFree", "aclrtDestroyStream", "rtsBinaryUnload",
                                         "aclrtResetDevice", "aclrtSetCurrentContext"};
// Their number depends on the time that streams take. The first calls stand for all.
const std::map<std::string, uint64_t> kRepeated = {{"aclrtStreamQuery", 6},
                                                   {"aclrtSetCurrentContext", 60}};

const pto_backend_api& table() {
  static const pto_backend_api* const api = [] {
    void* library = dlopen(PTO_BACKEND, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) check::fail(__FILE__, __LINE__, dlerror());
    return reinterpret_cast<pto_backend_entry_fn>(dlsym(library, PTO_BACKEND_ENTRY_SYMBOL))();
  }();
  return *api;
}

struct Cell {
  std::string variant;
  std::string function;
  uint32_t nth = 0;
  int32_t code = 0;
};

void require(bool condition, const Cell& cell, const std::string& what) {
  if (condition) return;
  check::fail(__FILE__, __LINE__,
              cell.variant + ", " + cell.function + ", call " + std::to_string(cell.nth) +
                  ", code " + std::to_string(cell.code) + ": " + what);
}

// The table from open() to close(). After the first error only the calls that release something
// follow, as in the core.
class Use {
 public:
  explicit Use(const std::string& variant) : variant_(variant) {}

  // Returns the first error; its status is PTO_OK if there was none.
  pto_error run() {
    const std::string folder = (vendor::kFolders / "fake").string();
    const pto_option options[] = {
        {"folder", folder.c_str()}, {"images", PTO_IMAGES}, {"fake", "1"}, {"pool_mib", "16"}};
    pto_device_shape shape = {};
    if (!has_passed(api_.open(0, options, 4, &device_, &shape, &error_))) return error_;
    if (attach()) {
      use();
      release();
      api_.detach(device_);
    }
    pto_leak_report leaks = {};
    api_.close(device_, &leaks);
    return error_;
  }

 private:
  bool has_passed(pto_status status) {
    CHECK_EQUAL(status, error_.status);
    return status == PTO_OK;
  }

  bool attach() {
    const std::string path = hbg + "/native/libpto_" + variant_ + ".so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    const auto entry =
        reinterpret_cast<pto_runtime_entry_fn>(dlsym(library, PTO_RUNTIME_ENTRY_SYMBOL));
    const pto_artefact artefact = {"runtime", path.c_str()};
    const pto_attachment attachment = {entry(variant_.c_str()), variant_.c_str(), &artefact, 1, 0};
    return has_passed(api_.attach(device_, &attachment, nullptr, 0, &proxy_, &runtime_, &error_));
  }

  // Adds 1 to each float of a block, in a second one.
  void use() {
    const std::string path = kernel("add"), library = kernel("graph_of_7");
    const pto_kernel_source source = {7,       PTO_CORE_AIV, "add",  path.c_str(),
                                      nullptr, nullptr,      nullptr};
    pto_kernel_entry entry = {7, PTO_CORE_AIV, 0, "add", nullptr};
    float values[kCount] = {1, 2, 3}, read[kCount] = {};
    if (!has_passed(api_.allocate(device_, sizeof values, &in_, &error_))) return;
    if (!has_passed(api_.allocate(device_, sizeof values, &out_, &error_))) return;
    if (!has_passed(api_.copy_in(device_, in_, values, sizeof values, &error_))) return;
    if (!has_passed(api_.load_kernel(device_, &source, &kernel_, &error_))) return;
    entry.address = kernel_;
    const bool is_on_device = variant_ == "aicpu_build_graph";
    if (is_on_device &&
        !has_passed(api_.load_library(device_, library.c_str(), &graph_, &error_))) {
      return;
    }
    const KernelRun task(entry, in_, out_, graph_);
    for (int round = 0; round < 2; ++round) {
      if (!has_passed(run_once(task.run))) return;
    }
    if (!has_passed(api_.copy_out(device_, read, out_, sizeof read, &error_))) return;
    CHECK_EQUAL(read[2], 4.0f);
  }

  pto_status run_once(const pto_run& run) {
    const pto_status status = api_.start(device_, &run, &error_);
    if (status != PTO_OK) return status;
    if (graph_ == 0) {
      const uint64_t args[] = {in_, out_, 1, kCount};
      const pto_task task = {7, PTO_CORE_AIV, 4, -1, args, 0, 0, nullptr};
      proxy_->submit(runtime_, &task);
      api_.orchestration_done(device_, 0);
    }
    CHECK_EQUAL(api_.wait(device_, kLongNs), PTO_OK);
    pto_run_report report = {};
    return api_.finish(device_, &report, &error_);
  }

  void release() {
    if (kernel_ != 0) api_.unload_kernel(device_, kernel_);
    if (graph_ != 0) api_.unload_library(device_, graph_);
    if (in_ != 0) api_.free(device_, in_, nullptr);
    if (out_ != 0) api_.free(device_, out_, nullptr);
  }

  const pto_backend_api& api_ = table();
  const std::string variant_;
  void* device_ = nullptr;
  void* runtime_ = nullptr;
  const pto_runtime_api* proxy_ = nullptr;
  uint64_t kernel_ = 0, graph_ = 0, in_ = 0, out_ = 0;
  pto_error error_ = {};
};

vendor::Control& fresh() {
  static vendor::Control control(vendor::kFolders / "fake");
  control.reset();
  void* library = dlopen((vendor::kFolders / "fake" / "libacl_rt.so").c_str(), RTLD_NOW);
  CHECK(library != nullptr);
  const auto initialise = reinterpret_cast<int32_t (*)(const char*)>(dlsym(library, "aclInit"));
  CHECK_EQUAL(initialise(nullptr), 0);
  return control;
}

// Returns the findings that a failed call must not cause.
std::string unexpected(const std::string& findings, const std::string& function) {
  std::string kept;
  for (size_t start = 0; start < findings.size();) {
    const size_t end = findings.find('\n', start) + 1;
    const std::string line = findings.substr(start, end - start);
    if (!line.starts_with("leak") || !kReleases.contains(function)) kept += line;
    start = end;
  }
  return kept;
}

void use_without_failure(const vendor::Control& control, const Cell& cell) {
  const pto_error error = Use(cell.variant).run();
  require(error.status == PTO_OK, cell, std::string("the next use: ") + error.message);
  const std::string findings = unexpected(control.findings(), cell.function);
  require(findings.empty(), cell, "after the next use: " + findings);
}

void fail_once(const Cell& cell, bool is_late) {
  vendor::Control& control = fresh();
  control.fail(cell.function.c_str(), cell.nth, cell.code, is_late);
  const pto_error error = Use(cell.variant).run();
  if (control.calls(cell.function.c_str()) < cell.nth) return;  // fewer looks were needed
  const std::string message = error.message;
  // The outcome of calls that release something is not returned.
  const std::string stated = " failed with code " + std::to_string(cell.code);
  require(error.status == PTO_OK || message.find(stated) != std::string::npos, cell, message);
  const std::string findings = unexpected(control.findings(), cell.function);
  require(findings.empty(), cell, findings);
  if (cell.function != "aclrtResetDevice") use_without_failure(control, cell);
}

std::map<std::string, uint64_t> calls_of_a_use(const std::string& variant) {
  vendor::Control& control = fresh();
  use_without_failure(control, {variant, "", 0, 0});
  std::map<std::string, uint64_t> counts;
#define PTO_COUNT(library, need, result, name, parameters) counts[#name] = control.calls(#name);
  PTO_A2A3_FUNCTIONS(PTO_COUNT)
#undef PTO_COUNT
  for (const char* name : {"aclrtGetSocName", "aclGetRecentErrMsg"}) counts.erase(name);
  return counts;
}

TEST(each_call_of_a_device_fails_once) {
  const auto start = std::chrono::steady_clock::now();
  uint32_t cells = 0;
  for (const std::string variant : kVariants) {
    for (const auto& [name, count] : calls_of_a_use(variant)) {
      const auto repeated = kRepeated.find(name);
      const uint64_t most = repeated != kRepeated.end() ? repeated->second : count;
      for (uint32_t nth = 1; nth <= most; ++nth) {
        for (const int32_t code : name.starts_with("hal") ? kHalCodes : kCodes) {
          fail_once({variant, name, nth, code}, false);
          ++cells;
        }
      }
    }
  }
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  std::printf("  %u failures in %.1f s\n", cells, used.count());
}

TEST(each_launch_of_a_device_fails_later) {
  for (const std::string variant : kVariants) {
    for (const auto& [name, count] : calls_of_a_use(variant)) {
      const bool is_launch = name.find("Launch") != std::string::npos;
      for (uint32_t nth = 1; is_launch && nth <= count; ++nth) {
        for (const int32_t code : kCodes) fail_once({variant, name, nth, code}, true);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  hbg = argv[1];
  setenv("PTO_FAKE_DRIVER", settings("blocks=1 seed=9").c_str(), 1);
  return check::run_all(argc - 1, argv + 1);
}
