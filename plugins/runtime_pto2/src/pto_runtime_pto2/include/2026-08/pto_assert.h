// The assertions are the same in both interfaces.
#include "../2026-03/pto_assert.h"
