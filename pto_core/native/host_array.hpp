// The memory of a user's array (NumPy, buffer protocol or DLPack), without a copy.
//
// Use with the GIL held. The exporter's buffer stays exported while the HostArray lives.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "numpy_api.hpp"

namespace pto::core {

namespace nb = nanobind;

// A description of an array for messages. The text is built only when a message needs it.
using Describe = std::function<std::string()>;

// The advice of a message about an array that cannot be used in place.
enum class Advice {
  kPassCopy,          // the array is only read
  kPassAndCopyBack,   // the array may be an output
  kPassSharedMemory,  // other processes use the array too
};

class HostArray {
 public:
  // Raise UsageError if `object` is not a C-contiguous array in host memory with a supported data
  // type, or if it is read-only and `must_write` is set. The message starts with describe() and
  // ends with `others`, the other accepted types.
  HostArray(nb::handle object, bool must_write, const Describe& describe, Advice advice,
            const std::string& others = "");

  void* data = nullptr;
  uint64_t bytes = 0;
  uint8_t code = 0;
  bool writable = false;
  std::vector<npy_intp> shape;

 private:
  void take_numpy(nb::handle object, const Describe& describe, Advice advice);
  bool take_buffer(nb::handle object, const Describe& describe, Advice advice);
  bool take_dlpack(nb::handle object, const Describe& describe, Advice advice);
  nb::object take_capsule(nb::handle object, const Describe& describe);
  void finish(nb::handle object, bool must_write, const Describe& describe);

  std::shared_ptr<void> hold_;  // keeps the memory; its destructor returns the memory to the owner
};

}  // namespace pto::core
