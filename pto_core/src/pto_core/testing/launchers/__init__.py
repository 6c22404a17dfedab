"""The contract of launchers: agents start, answer their client, and end."""

from pto_core.testing.launchers.subject import LauncherSubject

__all__ = ["LauncherSubject"]
