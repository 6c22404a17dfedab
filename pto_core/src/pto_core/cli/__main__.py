"""Run the ``pto`` command by ``python -m pto_core.cli``."""

import sys

from pto_core.cli.main import main

sys.exit(main())
