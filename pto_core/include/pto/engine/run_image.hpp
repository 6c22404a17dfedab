// Writes a run as an image, and reads an image on the device. pto/abi/run_image.h describes it.
#pragma once

#include <cstdint>
#include <cstring>

#include "pto/abi/run_image.h"

namespace pto::engine {

// The offsets of the parts of an image.
struct RunImageLayout {
  uint64_t kernels, args, arguments, entry, config, bytes;
  uint32_t entry_bytes;

  explicit RunImageLayout(const pto_run& run) {
    kernels = sizeof(pto_run_image);
    args = kernels + uint64_t{run.num_kernels} * sizeof(pto_kernel_entry);
    arguments = args + uint64_t{run.num_args} * sizeof(uint64_t);
    config = arguments + (run.arguments != nullptr ? run.num_args * sizeof(pto_tensor) : 0);
    entry = config + (run.config != nullptr ? sizeof(pto_call_config) : 0);
    entry_bytes = run.entry != nullptr ? static_cast<uint32_t>(std::strlen(run.entry) + 1) : 0;
    bytes = (entry + entry_bytes + 7) / 8 * 8;
  }
};

inline uint64_t run_image_bytes(const pto_run& run) {
  return RunImageLayout(run).bytes;
}

// Writes run_image_bytes(run) bytes to `out`.
inline void write_run_image(const pto_run& run, void* out) {
  const RunImageLayout layout(run);
  char* image = static_cast<char*>(out);
  const pto_run_image header = {PTO_RUN_IMAGE_MAGIC,
                                PTO_ABI_VERSION,
                                layout.bytes,
                                run.library,
                                run.num_kernels,
                                run.num_args,
                                run.hazards,
                                layout.entry_bytes,
                                layout.kernels,
                                layout.args,
                                run.arguments != nullptr ? layout.arguments : 0,
                                layout.entry,
                                run.config != nullptr ? layout.config : 0};
  std::memset(image, 0, layout.bytes);
  std::memcpy(image, &header, sizeof header);
  auto* kernels = reinterpret_cast<pto_kernel_entry*>(image + layout.kernels);
  for (uint32_t i = 0; i < run.num_kernels; ++i) {
    kernels[i] = run.kernels[i];
    kernels[i].name = nullptr;
    kernels[i].signature = nullptr;
  }
  if (run.num_args > 0) {
    std::memcpy(image + layout.args, run.args, run.num_args * sizeof(uint64_t));
  }
  if (run.arguments != nullptr) {
    std::memcpy(image + layout.arguments, run.arguments, run.num_args * sizeof(pto_tensor));
  }
  if (run.config != nullptr) {
    std::memcpy(image + layout.config, run.config, sizeof(pto_call_config));
  }
  if (layout.entry_bytes > 0) std::memcpy(image + layout.entry, run.entry, layout.entry_bytes);
}

// Whether the image has `count` elements of `size` bytes at `offset`, aligned to `alignment`.
inline bool has_part(const pto_run_image& header, uint64_t offset, uint64_t count, uint64_t size,
                     uint64_t alignment) {
  if (offset < sizeof header || offset > header.bytes || offset % alignment != 0) return false;
  return count <= (header.bytes - offset) / size;
}

// Reads an image of `bytes` bytes, of which `run` refers to parts. `library` is the handle of the
// run's library on the device. Returns false, and leaves `run` unchanged, if the bytes are no
// image.
inline bool read_run_image(const void* image, uint64_t bytes, uint64_t library, pto_run& run) {
  const char* at = static_cast<const char*>(image);
  pto_run_image header;
  if (bytes < sizeof header) return false;
  std::memcpy(&header, at, sizeof header);
  if (header.magic != PTO_RUN_IMAGE_MAGIC || header.version != PTO_ABI_VERSION ||
      header.bytes > bytes || header.bytes < sizeof header) {
    return false;
  }
  const bool has_config = header.config != 0;
  const bool has_entry = header.entry_bytes > 0;
  const bool has_arguments = header.arguments != 0;
  if (!has_part(header, header.kernels, header.num_kernels, sizeof(pto_kernel_entry), 8) ||
      !has_part(header, header.args, header.num_args, sizeof(uint64_t), 8) ||
      (has_arguments &&
       !has_part(header, header.arguments, header.num_args, sizeof(pto_tensor), 8)) ||
      (has_config && !has_part(header, header.config, 1, sizeof(pto_call_config), 4)) ||
      (has_entry && !has_part(header, header.entry, header.entry_bytes, 1, 1))) {
    return false;
  }
  const char* entry = has_entry ? at + header.entry : nullptr;
  if (has_entry && entry[header.entry_bytes - 1] != '\0') return false;
  run = {};
  run.kernels = reinterpret_cast<const pto_kernel_entry*>(at + header.kernels);
  run.num_kernels = header.num_kernels;
  run.args = reinterpret_cast<const uint64_t*>(at + header.args);
  run.num_args = header.num_args;
  if (has_arguments) run.arguments = reinterpret_cast<const pto_tensor*>(at + header.arguments);
  run.hazards = header.hazards;
  run.library = library;
  run.entry = entry;
  if (has_config) run.config = reinterpret_cast<const pto_call_config*>(at + header.config);
  return true;
}

}  // namespace pto::engine
