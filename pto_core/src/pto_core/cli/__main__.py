"""``python -m pto_core.cli`` is ``pto``."""

import sys

from pto_core.cli.main import main

sys.exit(main())
