// The folders of vendor libraries that the build makes, and the control of the fake driver.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "cann/driver.hpp"
#include "check.hpp"
#include "control.h"

namespace vendor {

namespace fs = std::filesystem;

inline const fs::path kFolders = PTO_VENDOR_FOLDERS;

// The control functions of one copy of the fake driver.
struct Control {
  explicit Control(const fs::path& folder) {
    void* library = dlopen((folder / "libascend_hal.so").c_str(), RTLD_NOW);
    CHECK(library != nullptr);
    find(library, "pto_fake_configure", configure);
    find(library, "pto_fake_fail", fail);
    find(library, "pto_fake_calls", calls);
    find(library, "pto_fake_findings", list);
    find(library, "pto_fake_reset", reset);
    find(library, "pto_fake_set_program", set_program);
    find(library, "pto_fake_process", process);
    find(library, "pto_fake_view", view);
  }

  std::string findings() const {
    char text[4096];
    list(text, sizeof text);
    return text;
  }

  decltype(&pto_fake_configure) configure;
  decltype(&pto_fake_fail) fail;
  decltype(&pto_fake_calls) calls;
  decltype(&pto_fake_findings) list;
  decltype(&pto_fake_reset) reset;
  decltype(&pto_fake_set_program) set_program;
  decltype(&pto_fake_process) process;
  decltype(&pto_fake_view) view;

 private:
  template <class Function>
  static void find(void* library, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    CHECK(function != nullptr);
  }
};

inline pto::a2a3::cann::DriverOptions options(const fs::path& folder) {
  return {folder.string(), "", true};
}

// The fake driver of this process, loaded once. Each test starts with `fresh`.
struct Fake {
  Control control{kFolders / "fake"};
  pto::a2a3::cann::CannDriver driver;
};

inline Fake& fresh(const char* settings = "") {
  static Fake* fake = nullptr;
  if (fake == nullptr) {
    fake = new Fake;
    pto_error error = {};
    CHECK_EQUAL(fake->driver.load(options(kFolders / "fake"), &error), PTO_OK);
  }
  fake->control.reset();
  fake->control.set_program(nullptr, nullptr);
  CHECK_EQUAL(fake->control.configure(
                  "devices=4,soc=Ascend910B3,version=8.3.RC1,cubes=24,vectors=48,memory_mib=64,"
                  "probe=1,operation_timeout_ms=2000,async_copy_ms=0,streams=1984,process=,"
                  "silicon=,libraries=,clusters=1,register_bytes=209715200"),
              0);
  CHECK_EQUAL(fake->control.configure(settings), 0);
  CHECK_EQUAL(fake->driver.functions().aclInit(nullptr), 0);
  return *fake;
}

// A folder with copies of the fake driver in which functions have another name.
class PatchedFolder {
 public:
  explicit PatchedFolder(const std::string& hidden) {
    // mkdtemp replaces the six letters at the end
    std::string name = (fs::temp_directory_path() / ("pto_fake_" + std::string(6, 'X'))).string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path = name;
    std::ifstream file(kFolders / "fake" / "libacl_rt.so", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string old_name = std::string(1, '\0') + hidden + std::string(1, '\0');
    size_t place = bytes.find(old_name);
    CHECK(place != std::string::npos);
    for (; place != std::string::npos; place = bytes.find(old_name, place)) bytes[place + 1] = '_';
    std::ofstream(path / "libacl_rt.so", std::ios::binary) << bytes;
    fs::create_symlink("libacl_rt.so", path / "libruntime.so");
    fs::create_symlink("libacl_rt.so", path / "libascend_hal.so");
  }
  ~PatchedFolder() { fs::remove_all(path); }

  fs::path path;
};

}  // namespace vendor
