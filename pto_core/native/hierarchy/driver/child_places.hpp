// The places for children, as the program numbers them. A place is empty until a Worker joins, and
// after it has left; only places of the kind NEXT_LEVEL are ever empty.
//
// Call with the GIL held.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/interface.hpp"

namespace pto::hierarchy {

class ChildPlaces {
 public:
  explicit ChildPlaces(std::span<const ChildConfiguration> children) {
    for (const ChildConfiguration& child : children) {
      all_[static_cast<size_t>(child.kind)].push_back(static_cast<int32_t>(kinds_.size()));
      kinds_.push_back(child.kind);
    }
    present_ = all_;
  }

  // Return the places of a kind. The index of a place is the program's number of its child.
  std::span<const int32_t> all(Kind kind) const { return all_[static_cast<size_t>(kind)]; }
  // Return the places of a kind that have a child, in ascending order.
  std::span<const int32_t> present(Kind kind) const { return present_[static_cast<size_t>(kind)]; }
  bool has_empty() const { return has_empty_; }
  bool is_present(int32_t child) const {
    const auto& found = present_[static_cast<size_t>(kinds_[static_cast<size_t>(child)])];
    return std::binary_search(found.begin(), found.end(), child);
  }

  void set_present(int32_t child, bool is_present) {
    auto& found = present_[static_cast<size_t>(kinds_.at(static_cast<size_t>(child)))];
    std::erase(found, child);
    if (is_present) found.insert(std::lower_bound(found.begin(), found.end(), child), child);
    has_empty_ = present_ != all_;
  }

  // Return the program's numbers of the children of a kind, for messages: "0 to 3", or "0, 2".
  std::string numbers(Kind kind) const {
    const auto places = all(kind);
    std::string text;
    size_t count = 0;
    size_t last = 0;
    for (size_t number = 0; number < places.size(); ++number) {
      if (!is_present(places[number])) continue;
      text += (text.empty() ? "" : ", ") + std::to_string(number);
      count += 1;
      last = number;
    }
    return count > 0 && count == last + 1 ? "0 to " + std::to_string(last) : text;
  }

 private:
  std::vector<Kind> kinds_;                  // the kind of each child
  std::array<std::vector<int32_t>, 2> all_;  // by kind
  std::array<std::vector<int32_t>, 2> present_;
  bool has_empty_ = false;
};

}  // namespace pto::hierarchy
