// The memory of an array that a user handed in: NumPy, buffer protocol or DLPack, never copied.
//
// Used with the GIL held. The memory stays pinned as long as the HostArray lives.
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

// How messages speak of an array; built only when there is something to say.
using Describe = std::function<std::string()>;

class HostArray {
 public:
  // Raises UsageError, beginning with describe(), when `object` is no C-contiguous array in host
  // memory of a supported data type, or is read-only although `must_write`. `others`: what the
  // caller takes besides, as the end of the message.
  HostArray(nb::handle object, bool must_write, const Describe& describe,
            const std::string& others = "");

  void* data = nullptr;
  uint64_t bytes = 0;
  uint8_t code = 0;
  bool writable = false;
  std::vector<npy_intp> shape;

 private:
  void take_numpy(nb::handle object, const Describe& describe);
  bool take_buffer(nb::handle object, const Describe& describe);
  bool take_dlpack(nb::handle object, const Describe& describe);
  nb::object take_capsule(nb::handle object, const Describe& describe);
  void finish(nb::handle object, bool must_write, const Describe& describe);

  std::shared_ptr<void> hold_;  // gives the memory back to its owner
};

}  // namespace pto::core
