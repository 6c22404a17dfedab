"""The contract of launchers, with a cluster of several nodes."""

from __future__ import annotations

import pytest

from pto_devkit.launchers import LauncherContract

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("address")]


class TestRay(LauncherContract):
    launcher = "ray"
