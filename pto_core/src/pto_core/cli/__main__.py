"""Run the ``pto`` command when the user calls ``python -m pto_core.cli``."""

import sys

from pto_core.cli.main import main

sys.exit(main())
