// The access log of a run (pto/abi/access_log.h), as a runtime variant writes it.
//
// Used by the orchestrator only. The log of a run is valid until the next begin().
#pragma once

#include "pto/abi/access_log.h"
#include "pto/abi/arguments.h"
#include "pto/engine/memory.hpp"

namespace pto::engine {

class AccessLog {
 public:
  explicit AccessLog(Memory& memory) : memory_(memory) {}

  void destroy() {
    tasks_.destroy(memory_);
    accesses_.destroy(memory_);
    events_.destroy(memory_);
  }

  void begin(const pto_call_config* config) {
    is_on_ = config != nullptr && config->enable_dep_gen != 0;
    tasks_.count = accesses_.count = events_.count = 0;
  }

  bool is_on() const { return is_on_; }

  // These functions return false if memory is exhausted.
  bool add_task(pto_logged_task task) {
    task.accesses = static_cast<uint32_t>(accesses_.count);
    return tasks_.add(memory_, task);
  }
  // Call it before the add_task() of the task.
  bool add_access(const pto_tensor_data& access) { return accesses_.add(memory_, access); }
  bool add_event(uint32_t kind, int64_t first, int64_t second, const char* file, int32_t line) {
    const auto tasks = static_cast<int64_t>(tasks_.count);
    return events_.add(memory_, {kind, line, file, tasks, first, second});
  }

  pto_access_log content() const {
    return {tasks_.elements, accesses_.elements, events_.elements,
            tasks_.count,    accesses_.count,    events_.count};
  }

 private:
  template <class Element>
  struct Rows {
    Element* elements = nullptr;
    uint64_t count = 0;
    uint64_t capacity = 0;

    bool add(Memory& memory, const Element& element) {
      if (count == capacity && !grow(memory)) return false;
      elements[count++] = element;
      return true;
    }

    bool grow(Memory& memory) {
      const uint64_t larger = capacity == 0 ? 1024 : 2 * capacity;
      if (capacity == 0) {
        elements = static_cast<Element*>(memory.reserve(larger * sizeof(Element)));
        if (elements == nullptr) return false;
      } else if (!memory.enlarge(elements, count, capacity, larger)) {
        return false;
      }
      capacity = larger;
      return true;
    }

    void destroy(Memory& memory) { memory.release(elements, capacity * sizeof(Element)); }
  };

  Memory& memory_;
  bool is_on_ = false;
  Rows<pto_logged_task> tasks_;
  Rows<pto_tensor_data> accesses_;
  Rows<pto_logged_event> events_;
};

}  // namespace pto::engine
