// The types of cores are the same in both interfaces.
#include "../../2026-03/common/core_type.h"
