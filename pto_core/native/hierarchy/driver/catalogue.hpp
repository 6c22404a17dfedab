// The callables and configurations that frames identify by number. Only the thread that has the
// driver role uses them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "callable/callable_handle.hpp"

namespace pto::hierarchy {

class Catalogue {
 public:
  // Return the number of a callable. Callables with equal digests have the same number.
  uint32_t add_callable(const Digest& digest, const std::string& name) {
    const std::string key(reinterpret_cast<const char*>(digest.data()), digest.size());
    const auto [found, is_new] =
        callable_numbers_.try_emplace(key, static_cast<uint32_t>(callables_.size()));
    if (is_new) callables_.push_back({digest, name});
    return found->second;
  }
  uint32_t callables() const { return static_cast<uint32_t>(callables_.size()); }
  const Digest& digest(uint32_t callable) const { return callables_[callable].digest; }
  const std::string& name(uint32_t callable) const { return callables_[callable].name; }

  // Configurations are numbered from 1. add_config() adds configuration `number`. It returns false
  // and does nothing if `number` is not next_config(). `frame`: the data of the control frame that
  // sends the configuration to a child.
  uint32_t next_config() const { return static_cast<uint32_t>(configs_.size() + 1); }
  bool add_config(uint32_t number, std::string frame) {
    if (number != next_config()) return false;
    configs_.push_back(std::make_shared<const std::string>(std::move(frame)));
    return true;
  }
  const std::shared_ptr<const std::string>& config_frame(uint32_t number) const {
    return configs_[number - 1];
  }

 private:
  struct Callable {
    Digest digest;
    std::string name;
  };

  std::deque<Callable> callables_;
  std::unordered_map<std::string, uint32_t> callable_numbers_;
  std::vector<std::shared_ptr<const std::string>> configs_;
};

}  // namespace pto::hierarchy
