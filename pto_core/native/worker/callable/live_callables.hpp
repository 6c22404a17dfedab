// The live registrations of one Worker. Each public function that accepts a handle checks it here.
//
// Call with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "callable/callable_handle.hpp"
#include "errors.hpp"

namespace pto::worker {

namespace nb = nanobind;

class LiveCallables {
 public:
  explicit LiveCallables(const Identity& worker) : worker_(worker) {}

  const Identity& worker() const { return worker_; }

  // A number that increases when a registration ends, so that callers can cache the results of
  // check().
  uint64_t version() const { return version_; }

  // `workers`: the ids of the children that have the callable; empty: all children of its
  // namespace. `scalars`: see CallableHandle.
  void add(const CallableHandle& handle, std::vector<int32_t> workers = {},
           std::vector<int> scalars = {}) {
    live_.try_emplace(handle.registration, handle).first->second.scalars = std::move(scalars);
    if (!workers.empty()) workers_.insert_or_assign(handle.registration, std::move(workers));
  }

  // Return the child ids that were passed to add(), for a live handle of the namespace
  // REMOTE_TASK_DISPATCHER.
  std::span<const int32_t> workers_of(const CallableHandle& handle) const {
    const auto found = workers_.find(handle.registration);
    if (found == workers_.end()) return {};
    return found->second;
  }

  // Return false if the registration is not live.
  bool remove(const CallableHandle& handle) {
    ++version_;
    workers_.erase(handle.registration);
    return live_.erase(handle.registration) != 0;
  }

  // End all registrations, because the Worker is closed.
  void close() {
    ++version_;
    is_closed_ = true;
    live_.clear();
    workers_.clear();
  }

  bool has(const CallableHandle& handle) const { return live_.contains(handle.registration); }

  // Check a handle, which may be a copy, and return the live handle of its registration. Raises
  // UsageError for any other object, and WorkerClosedError after close().
  const CallableHandle& check(nb::handle object) const {
    if (!nb::isinstance<CallableHandle>(object) || !nb::inst_ready(object)) {
      refuse(object, "handle is " + core::shown(object) + " of type " + core::type_text(object) +
                         "; pass a handle that Worker.register returned");
    }
    const auto& handle = *nb::inst_ptr<CallableHandle>(object);
    const auto found = live_.find(handle.registration);
    if (found != live_.end()) return found->second;
    if (handle.worker != worker_) {
      refuse(object, "the handle of '" + handle.name +
                         "' belongs to another Worker; register the callable with this one");
    }
    if (is_closed_)
      core::raise_error("WorkerClosedError", "this Worker is closed; create another one");
    refuse(object, "the handle of '" + handle.name +
                       "' is dead: it was unregistered, or it belongs to another process of this "
                       "Worker; register the callable again");
  }

 private:
  struct Hash {
    size_t operator()(const Identity& identity) const {
      size_t first = 0;
      std::memcpy(&first, identity.data(), sizeof first);
      return first;
    }
  };

  [[noreturn]] static void refuse(nb::handle object, const std::string& message) {
    nb::dict fields;
    fields["name"] = "handle";
    fields["value"] = object;
    core::raise_error("UsageError", message, fields);
  }

  const Identity worker_;
  uint64_t version_ = 0;
  bool is_closed_ = false;
  std::unordered_map<Identity, CallableHandle, Hash> live_;
  std::unordered_map<Identity, std::vector<int32_t>, Hash> workers_;
};

}  // namespace pto::worker
