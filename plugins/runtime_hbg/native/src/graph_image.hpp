// The image of a complete graph. With it, an instance on a device runs a graph that an instance on
// the host has built.
//
// An image is a GraphImage, then for each task an ImageTask, its payload, and the ids of its
// successors, padded to 8 bytes. It contains no pointer of the host. The address of a kernel is 0
// if the run lists the kernel: the reader takes the address from its own run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph.hpp"

namespace pto::build_graph {

// Increase it with each change of the image, which includes the layout of pto_payload.
constexpr uint32_t kGraphImageVersion = 1;

struct GraphImage {
  uint32_t magic;
  uint32_t version;
  uint64_t bytes;  // of the whole image
  uint64_t tasks;
  uint64_t hash;  // of all bytes after the header, and `tasks`
};
static_assert(sizeof(GraphImage) == 32, "images travel between processors");

struct ImageTask {
  uint32_t payload_bytes;
  int32_t core_type;
  uint32_t successors;
  uint32_t reserved;
};
static_assert(sizeof(ImageTask) == 16, "images travel between processors");

// Returns the size of the image. Writes it if `capacity` bytes suffice.
size_t write_graph(Graph& graph, void* out, size_t capacity);

// Adds the tasks and edges of an image to an empty graph. Latches an error if the version differs,
// if the image is incomplete, or if the graph refuses a task or an edge.
pto_status read_graph(const void* image, size_t bytes, Graph& graph, Context& context);

}  // namespace pto::build_graph
