// Takes the native engine out of its Python object, for the driver of a Worker.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "engine/interface.hpp"

namespace pto::hierarchy {

struct TakenEngine {
  std::unique_ptr<Engine> engine;
  bool calls_python = false;  // whether a policy in Python places its tasks
};

// Take the engine out of an EngineCore, which is unusable afterwards. Empty for other objects.
TakenEngine take_engine(nanobind::handle core);

}  // namespace pto::hierarchy
