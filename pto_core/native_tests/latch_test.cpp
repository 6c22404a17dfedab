// Invariant of this file: A latched error has no content of the memory in which the latch is.
#include "pto/engine/latch.hpp"

#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "check.hpp"

namespace {

using pto::engine::ErrorLatch;

TEST(an_error_has_no_content_of_earlier_memory) {
  const auto memory = std::make_unique<unsigned char[]>(sizeof(ErrorLatch));
  std::memset(memory.get(), 0xa5, sizeof(ErrorLatch));
  asm volatile("" : : "r"(memory.get()) : "memory");  // the compiler must keep the bytes
  auto* latch = new (memory.get()) ErrorLatch;
  for (const bool is_latched : {false, true}) {
    if (is_latched) latch->latch({PTO_ERROR_LOST}, "the device is lost");
    const pto_error& error = *latch->error();
    CHECK_EQUAL(error.status, is_latched ? PTO_ERROR_LOST : PTO_OK);
    CHECK_EQUAL(std::string(error.message), is_latched ? "the device is lost" : "");
    CHECK_EQUAL(std::string(error.file), "");
    CHECK_EQUAL(std::string(error.vendor_function), "");
    CHECK_EQUAL(error.vendor_code, 0);
    CHECK_EQUAL(error.code, 0);
    CHECK_EQUAL(error.core, -1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
