"""Run ``pto`` as ``python -m pto_core.cli``."""

import sys

from pto_core.cli.main import main

sys.exit(main())
