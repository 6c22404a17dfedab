// Takes the native engine out of its Python object, for the driver of a Worker.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/interface.hpp"

namespace pto::hierarchy {

struct TakenEngine {
  std::unique_ptr<Engine> engine;
  bool calls_python = false;  // whether a policy in Python chooses the children of its tasks
};

// Take the engine out of an EngineCore object, which is unusable afterwards. For any other object
// the result has no engine.
TakenEngine take_engine(nanobind::handle core);

}  // namespace pto::hierarchy
