#include "driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "../error.hpp"

namespace pto::a2a3::cann {

namespace {

enum Library { kAcl, kRuntime, kHal };

// The names of each library, the newest first.
struct Candidates {
  const char* names[2];
  const char* package;
};
constexpr Candidates kCandidates[] = {
    {{"libacl_rt.so", "libascendcl.so"}, "CANN toolkit"},
    {{"libruntime.so", nullptr}, "CANN toolkit"},
    {{"libascend_hal.so", nullptr}, "Ascend driver"},
};
constexpr Library acl = kAcl, runtime = kRuntime, hal = kHal;  // the words of the function list
constexpr bool required = true, optional = false;

// The fake driver of the tests exports this symbol; no library of the vendor does.
constexpr const char* kFakeMarker = "pto_fake_driver_marker";

// The chips that this plugin drives, by the beginnings of their names.
constexpr const char* kChips[] = {"Ascend910B", "Ascend910_93"};

constexpr size_t kLongestVendorText = 300;

// Returns one line of at most `kLongestVendorText` bytes, without a cut character.
std::string one_line(const char* text) {
  std::string line(text, strnlen(text, kLongestVendorText + 1));
  if (line.size() > kLongestVendorText) {
    size_t end = kLongestVendorText;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
    line.resize(end);
  }
  for (char& letter : line) {
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

void name_call(pto_error* error, const char* function, Code code) {
  if (error == nullptr) return;
  std::strncpy(error->vendor_function, function, sizeof error->vendor_function - 1);
  error->vendor_code = code;
}

template <class Signature>
bool find(void* library, bool is_required, Function<Signature>& function) {
  void* address = dlsym(library, function.name);
  function.address = reinterpret_cast<decltype(function.address)>(address);
  return address != nullptr || !is_required;
}

}  // namespace

Version read_version(std::string_view text) noexcept {
  Version version;
  const char* end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  const auto minor = std::from_chars(major.ptr + 1, end, version.minor);
  const bool is_whole = minor.ec == std::errc() && (minor.ptr == end || *minor.ptr == '.');
  return is_whole ? version : Version{};
}

pto_status CannDriver::load(const DriverOptions& options, pto_error* error) {
  pto_status status = open_libraries(options, error);
  if (status == PTO_OK) status = find_functions(error);
  if (status == PTO_OK) status = call(error, functions_.aclInit, nullptr);
  if (status == PTO_OK) status = read_release(options, error);
  return status;
}

pto_status CannDriver::open_libraries(const DriverOptions& options, pto_error* error) {
  const std::string folder = options.folder.empty() ? "" : options.folder + "/";
  for (Library library : {kAcl, kRuntime, kHal}) {
    const Candidates& candidates = kCandidates[library];
    std::string reasons;
    for (const char* name : candidates.names) {
      if (name == nullptr || libraries_[library] != nullptr) continue;
      libraries_[library] = dlopen((folder + name).c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (libraries_[library] == nullptr) reasons += std::string("; ") + dlerror();
    }
    if (libraries_[library] == nullptr) {
      const std::string reason = one_line(reasons.c_str());
      if (!folder.empty()) {
        return fail(error, PTO_ERROR_LOAD,
                    "the library %s of the %s cannot be loaded%s. Correct a2a3.library_folder "
                    "(PTO_A2A3_LIBRARY_FOLDER), or unset it and source CANN's set_env.sh in this "
                    "shell",
                    candidates.names[0], candidates.package, reason.c_str());
      }
      return fail(error, PTO_ERROR_LOAD,
                  "the library %s of the %s cannot be loaded%s. Install the %s; then source its "
                  "set_env.sh in this shell, so that LD_LIBRARY_PATH names its lib64, or set "
                  "PTO_A2A3_LIBRARY_FOLDER to the folder of its libraries",
                  candidates.names[0], candidates.package, reason.c_str(), candidates.package);
    }
    if (dlsym(libraries_[library], kFakeMarker) != nullptr) is_fake_ = true;
  }
  process_ = getpid();
  if (is_fake_ == options.is_fake) return PTO_OK;
  if (!is_fake_) {
    return fail(error, PTO_ERROR_LOAD,
                "a2a3.fake is set, but %s is not the fake driver of this plugin's tests; unset it "
                "to use a card",
                kCandidates[kAcl].names[0]);
  }
  return fail(error, PTO_ERROR_LOAD,
              "%s is the fake driver of this plugin's tests, not a card. Remove its folder from "
              "LD_LIBRARY_PATH; tests set a2a3.fake=1",
              kCandidates[kAcl].names[0]);
}

pto_status CannDriver::find_functions(pto_error* error) {
  const char* missing = nullptr;
  Library place = kAcl;
#define PTO_A2A3_FIND(library, need, result, name, parameters)                   \
  if (!find(libraries_[library], need, functions_.name) && missing == nullptr) { \
    missing = #name;                                                             \
    place = library;                                                             \
  }
  PTO_A2A3_FUNCTIONS(PTO_A2A3_FIND)
#undef PTO_A2A3_FIND
  if (missing == nullptr) return PTO_OK;
  return fail(error, PTO_ERROR_LOAD,
              "%s has no function %s. The plugin needs CANN 8.1 to 9.1 and a driver for it: "
              "install one of these releases",
              kCandidates[place].names[0], missing);
}

pto_status CannDriver::read_release(const DriverOptions& options, pto_error* error) {
  PackageVersion found = {};
  if (functions_.aclsysGetCANNVersion.address != nullptr) {
    const pto_status status = call(error, functions_.aclsysGetCANNVersion, kPackageCann, &found);
    if (status != PTO_OK && options.version.empty()) return status;
  }
  found.version[sizeof found.version - 1] = 0;
  const std::string text = options.version.empty() ? found.version : options.version;
  version_ = read_version(text);
  if (version_ != Version{}) return PTO_OK;
  return fail(error, PTO_ERROR_LOAD,
              "the CANN release is unknown: \"%s\". Set PTO_A2A3_CANN_VERSION to the installed "
              "release, for example 8.3",
              text.c_str());
}

pto_status CannDriver::check_process(pto_error* error) const {
  if (getpid() == process_) return PTO_OK;
  return fail(error, PTO_ERROR_USAGE,
              "process %d was forked from process %d, which had loaded CANN; CANN does not work "
              "after a fork. Start the process with the start method \"spawn\"",
              static_cast<int>(getpid()), process_);
}

pto_status CannDriver::check_chip(pto_error* error) const {
  const char* name = functions_.aclrtGetSocName();
  if (name == nullptr) {
    return fail(error, PTO_ERROR_LOAD,
                "aclrtGetSocName returned no name of the chip. %s. Check the driver with "
                "`npu-smi info`",
                vendor_message().c_str());
  }
  for (const char* chip : kChips) {
    if (std::strncmp(name, chip, std::strlen(chip)) == 0) return PTO_OK;
  }
  return fail(error, PTO_ERROR_UNSUPPORTED,
              "the chip %s is not an Ascend A2 or A3 (%s..., %s...); use another device", name,
              kChips[0], kChips[1]);
}

pto_status CannDriver::check(const char* function, Code code, pto_error* error,
                             const char* advice) const {
  const CodeEntry* entry = find_code(code);
  if (code == kSuccess || (entry != nullptr && entry->status == PTO_OK)) return PTO_OK;
  if (entry != nullptr && entry->status == PTO_PENDING) return PTO_PENDING;
  const std::string reported = vendor_message();
  const pto_status status = entry != nullptr ? entry->status : PTO_ERROR_INTERNAL;
  if (entry == nullptr) {
    fail(error, status,
         "%s failed with code %d, which is not in the plugin's table, so its meaning is unknown. "
         "%s. Look the code up in the documentation of CANN %d.%d, and report it%s%s",
         function, code, reported.c_str(), version_.major, version_.minor,
         advice != nullptr ? ". " : "", advice != nullptr ? advice : "");
  } else if (code == kLinkStub) {
    fail(error, status, "%s failed with code %d: %s (%s). %s", function, code, entry->meaning,
         path_of(function), entry->advice);
  } else {
    fail(error, status, "%s failed with code %d: %s. %s. %s", function, code, entry->meaning,
         reported.c_str(), advice != nullptr ? advice : entry->advice);
  }
  name_call(error, function, code);
  return status;
}

pto_status CannDriver::check_hal(const char* function, Code code, uint32_t device,
                                 pto_error* error) const {
  if (code == kSuccess) return PTO_OK;
  if (code == kLinkStub) return check(function, code, error);
  const char* advice = code == kHalWrongDevice
                           ? "The driver does not know this device; check that "
                             "ASCEND_RT_VISIBLE_DEVICES lists existing devices in ascending order"
                           : "Look the code up in the documentation of the driver, and report it";
  fail(error, PTO_ERROR_LOAD, "%s failed with code %d for device %u of the driver. %s", function,
       code, device, advice);
  name_call(error, function, code);
  return PTO_ERROR_LOAD;
}

pto_status CannDriver::fail_absent(const char* function, pto_error* error) const {
  return fail(error, PTO_ERROR_UNSUPPORTED,
              "CANN %d.%d has no function %s, which this call needs; install a newer release, up "
              "to 9.1",
              version_.major, version_.minor, function);
}

const char* CannDriver::path_of(const char* function) const {
  Dl_info place = {};
  for (void* library : libraries_) {
    void* address = library != nullptr ? dlsym(library, function) : nullptr;
    if (address != nullptr && dladdr(address, &place) != 0) return place.dli_fname;
  }
  return "unknown file";
}

std::string CannDriver::vendor_message() const {
  const char* text =
      functions_.aclGetRecentErrMsg.address ? functions_.aclGetRecentErrMsg() : nullptr;
  const std::string source = is_fake_ ? "The fake driver" : "CANN";
  const std::string line = text != nullptr ? one_line(text) : "";
  return line.empty() ? source + " gives no message" : source + " reports: \"" + line + "\"";
}

namespace {

struct Release {
  Version first;
  Version last;
  const char* operation;
  const char* kernel;
  const char* library;
};

constexpr Release kReleases[] = {
    {{8, 1}, {9, 1}, "AST_DYN_AICPU", "DynTileFwkKernelServerInit", "libaicpu_extend_kernels.so"},
};

}  // namespace

bool read_bootstrap(std::string_view key, std::string_view value, BootstrapNames& names) {
  std::string* name = nullptr;
  if (key == "bootstrap_operation") name = &names.operation;
  if (key == "bootstrap_kernel") name = &names.kernel;
  if (key == "bootstrap_library") name = &names.library;
  if (name != nullptr) *name = value;
  return name != nullptr;
}

pto_status find_bootstrap(Version version, const BootstrapNames& replaced, BootstrapNames* names,
                          pto_error* error) {
  *names = replaced;
  for (const Release& release : kReleases) {
    if (version < release.first || version > release.last) continue;
    if (names->operation.empty()) names->operation = release.operation;
    if (names->kernel.empty()) names->kernel = release.kernel;
    if (names->library.empty()) names->library = release.library;
  }
  if (!names->operation.empty() && !names->kernel.empty() && !names->library.empty()) return PTO_OK;
  return fail(error, PTO_ERROR_UNSUPPORTED,
              "the plugin knows the AICPU entry of CANN 8.1 to 9.1, not of %d.%d. Install a known "
              "release, or set a2a3.bootstrap_operation, a2a3.bootstrap_kernel and "
              "a2a3.bootstrap_library",
              version.major, version.minor);
}

pto_status find_driver_device(std::string_view visible, int32_t device, uint32_t* driver_device,
                              pto_error* error) {
  if (device < 0) {
    return fail(error, PTO_ERROR_USAGE, "device number %d is negative; numbers start at 0", device);
  }
  if (visible.empty()) {
    *driver_device = static_cast<uint32_t>(device);
    return PTO_OK;
  }
  const char* next = visible.data();
  const char* end = visible.data() + visible.size();
  int64_t previous = -1;
  for (int32_t logical = 0;; ++logical) {
    uint32_t number = 0;
    const auto read = std::from_chars(next, end, number);
    const bool is_valid = read.ec == std::errc() && (read.ptr == end || *read.ptr == ',');
    if (!is_valid || number <= previous) {
      return fail(error, PTO_ERROR_USAGE,
                  "ASCEND_RT_VISIBLE_DEVICES is \"%.*s\"; it must be a list of ascending device "
                  "numbers with commas and without spaces, for example 0,2",
                  static_cast<int>(visible.size()), visible.data());
    }
    if (logical == device) *driver_device = number;
    previous = number;
    if (read.ptr == end) {
      if (logical >= device) return PTO_OK;
      return fail(error, PTO_ERROR_USAGE,
                  "device %d does not exist: ASCEND_RT_VISIBLE_DEVICES is \"%.*s\", so the devices "
                  "are 0 to %d",
                  device, static_cast<int>(visible.size()), visible.data(), logical);
    }
    next = read.ptr + 1;
  }
}

}  // namespace pto::a2a3::cann
