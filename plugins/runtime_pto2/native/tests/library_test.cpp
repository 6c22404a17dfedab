// C++ orchestrations run through their own libraries and the runtime's library: results and errors.
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"
#include "tensor_kernels.hpp"

namespace {

constexpr uint64_t kCount = 64;

// A run of one entry over `kCount` floats with the values 0, 1, 2, ...
struct LibraryRun {
  TestDevice device{"tensormap_and_ringbuffer"};
  std::vector<float> in, out;
  pto_status status;

  explicit LibraryRun(const std::string& entry, uint32_t num_args = 3) : out(kCount, -1) {
    for (uint64_t i = 0; i < kCount; ++i) in.push_back(static_cast<float>(i));
    add_tensor_kernels(device);
    std::vector<uint64_t> args{reinterpret_cast<uint64_t>(in.data()),
                               reinterpret_cast<uint64_t>(out.data()), kCount};
    args.resize(num_args);
    const std::string folder = PTO_ORCHESTRATION_DIRECTORY;
    status = device.run_library(folder + "/tensormap_and_ringbuffer_" + entry + ".so", args);
  }

  std::string message() const { return device.error().message; }
};

template <class Expected>
void check_result(const std::string& entry, Expected expected) {
  const LibraryRun run(entry);
  if (run.status != PTO_OK) check::fail(__FILE__, __LINE__, entry + ": " + run.message());
  for (uint64_t i = 0; i < kCount; ++i) CHECK_EQUAL(run.out[i], expected(static_cast<float>(i)));
}

void check_error(const std::string& entry, pto_status status, const std::string& part) {
  const LibraryRun run(entry);
  if (run.status != status) check::fail(__FILE__, __LINE__, entry + ": \"" + run.message() + "\"");
  CHECK_CONTAINS(run.message(), part);
}

TEST(results) {
  const auto product = [](float x) { return (x + 1) * (x + 2); };
  for (const char* entry : {"diamond", "diamond_int", "diamond_of_views"}) {
    check_result(entry, product);
  }
  check_result("long_chain", [](float x) { return x + 1000; });
  check_result("clustered", [](float x) { return x + 1 + 2; });
  check_result("blocks", [](float x) { return x + 2; });
  CHECK_EQUAL(LibraryRun("logs").status, PTO_OK);
}

TEST(endings) {
  const LibraryRun seven("returns_seven");
  CHECK_EQUAL(seven.status, PTO_ERROR_ORCHESTRATION);
  CHECK_EQUAL(seven.device.error().value, uint64_t{7});
  CHECK_CONTAINS(LibraryRun("throws").message(), "no luck");
  // the end of the run ends the scope
  CHECK_EQUAL(LibraryRun("leaves_a_scope_open").status, PTO_OK);
  const LibraryRun lacking("diamond", 2);
  CHECK_EQUAL(lacking.status, PTO_ERROR_USAGE);
  CHECK_CONTAINS(lacking.message(), "expects 3 arguments");
  CHECK_EQUAL(lacking.out[0], -1.0f);
}

// checks_test and submit_test have the other usage errors.
TEST(usage_errors_name_what_is_wrong) {
  const LibraryRun ignored("ignores_errors");
  CHECK_EQUAL(ignored.status, PTO_ERROR_USAGE);
  CHECK_CONTAINS(ignored.message(), "address");
  CHECK_CONTAINS(std::string(ignored.device.error().file), "tensor_calls.cpp");
  CHECK(ignored.device.error().line > 0);
  CHECK_CONTAINS(ignored.message(), "tensor_calls.cpp:");
  check_error("view_out_of_bounds", PTO_ERROR_USAGE, "out of bounds");
  check_error("submits_after_done", PTO_ERROR_USAGE, "done");
  check_error("says_done_twice", PTO_ERROR_USAGE, "done");
  check_error("ends_no_scope", PTO_ERROR_USAGE, "scope");
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
