"""The contract of launchers: agents start, answer their client, and end."""

from pto_devkit.launchers.contract import LauncherContract
from pto_devkit.launchers.subject import LauncherSubject

__all__ = ["LauncherContract", "LauncherSubject"]
