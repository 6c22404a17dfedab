"""A case in Python, for tests of cases."""

from __future__ import annotations

import pytest

PYTHON_CONFIG = """
KERNELS = []
ORCHESTRATION = {"source": "python.py", "function_name": "graph"}
"""


@pytest.fixture
def uncompiled(case):
    """Return a case in Python, because a compilation would use up its time limit."""
    case.write("kernels/kernel_config.py", PYTHON_CONFIG)
    return case.write("kernels/python.py", "def graph(rt, a, f, n):\n    pass\n")
