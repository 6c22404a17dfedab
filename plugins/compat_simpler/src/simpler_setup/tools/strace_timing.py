"""Not available: ptorun measures its own times."""

import sys

from pto_compat_simpler.missing import missing

_ADVICE = "`pto run --trace --out DIR FOLDER` measures, and `pto trace summary DIR` shows the times"
__getattr__ = missing("simpler_setup.tools.strace_timing", _ADVICE)

if __name__ == "__main__":
    sys.exit(f"strace_timing is not available here; {_ADVICE}")
