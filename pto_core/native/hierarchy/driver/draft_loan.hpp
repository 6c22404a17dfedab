// A draft that one submit borrows. Used only by the sources of this folder.
#pragma once

#include <memory>
#include <utility>

#include "driver/submits.hpp"

namespace pto::hierarchy {

class Submits::DraftLoan {
 public:
  explicit DraftLoan(Submits& owner) : owner_(owner) {
    if (owner.drafts_.empty()) owner.drafts_.push_back(std::make_unique<Draft>());
    draft_ = std::move(owner.drafts_.back());
    owner.drafts_.pop_back();
    draft_->args.clear();
    draft_->keys.clear();
    draft_->members.clear();
    draft_->pins.clear();
    draft_->after.clear();
    draft_->workers.clear();
    draft_->has_child_memory = false;
  }
  ~DraftLoan() { owner_.drafts_.push_back(std::move(draft_)); }
  DraftLoan(const DraftLoan&) = delete;
  DraftLoan& operator=(const DraftLoan&) = delete;

  Draft& operator*() { return *draft_; }

 private:
  Submits& owner_;
  std::unique_ptr<Draft> draft_;
};

}  // namespace pto::hierarchy
