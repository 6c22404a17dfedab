// The defect of a broken plugin: the environment variable PTO_BREAK names one of DEFECTS(X), which
// the including file defines. So one library has all of its defects.
#pragma once

#include <cstdlib>
#include <cstring>
#include <iterator>

#define PTO_NUMBER(name) name,
enum class Defect { DEFECTS(PTO_NUMBER) };

inline bool breaks(Defect defect) {
  static const Defect chosen = [] {
#define PTO_NAME(name) #name,
    constexpr const char* names[] = {DEFECTS(PTO_NAME)};
    const char* wanted = std::getenv("PTO_BREAK");
    for (int i = 0; i < static_cast<int>(std::size(names)); ++i)
      if (wanted && std::strcmp(wanted, names[i]) == 0) return static_cast<Defect>(i);
    std::abort();
  }();
  return defect == chosen;
}
