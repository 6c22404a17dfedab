// The host's instance of host_build_graph: it builds a graph for a session, and copies the outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device_process/session.hpp"
#include "pto/abi/runtime.h"

class HostGraph {
 public:
  // `library`: of the variant. The topology of the host's instance is that of the session.
  HostGraph(Session& session, const std::string& library);
  ~HostGraph();
  HostGraph(const HostGraph&) = delete;
  HostGraph& operator=(const HostGraph&) = delete;

  // Call the entry of an orchestration library with pointers of the host, and return the graph.
  std::vector<char> build(const std::string& orchestration, const std::vector<uint64_t>& args);
  // After the device has run the graph: copy the recorded outputs to the host.
  void finish();

 private:
  static pto_platform make_platform(HostGraph& self);

  Session& session_;
  pto_topology topology_{};
  pto_platform platform_;
  const pto_runtime_api* api_;
  void* runtime_ = nullptr;
  void* orchestration_ = nullptr;
  std::vector<uint64_t> args_;
  pto_run run_{};
};
