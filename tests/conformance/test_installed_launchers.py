"""The kit, run for the launchers of the core."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import ClassVar

from pto_devkit.launchers import LauncherContract

PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


class TestLocal(LauncherContract):
    launcher = "local"


class TestCommand(LauncherContract):
    """Two addresses of this machine, with a shell in the place of ssh."""

    launcher = "command"
    settings: ClassVar[dict[str, object]] = {
        "host_list": "127.0.0.1,127.0.0.2",
        "host_command": f"env {shlex.quote('PATH=' + PATH)} sh -c {{command}}",
    }
