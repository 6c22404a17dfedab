"""Not available: the traces of ptorun need no conversion."""

import sys

from pto_compat_simpler.missing import missing

_ADVICE = "`pto run --trace --out DIR FOLDER` writes a page and a Perfetto file"
__getattr__ = missing("simpler_setup.tools.swimlane_converter", _ADVICE)

if __name__ == "__main__":
    sys.exit(f"swimlane_converter is not available here; {_ADVICE}")
