"""The contract of launchers as a test class."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pto_devkit.capabilities import contract_test
from pto_devkit.launchers import endings, placing
from pto_devkit.launchers.subject import LauncherSubject

_NO_SETTINGS: Mapping[str, object] = MappingProxyType({})


class LauncherContract:
    """The contract of launchers. A subclass sets ``launcher`` to its name.

    The launcher must be able to place two agents at a time. ``settings``: the settings of the core
    that it needs for that. The tests use the link of the configuration, which must have keys.
    """

    launcher: ClassVar[str]
    settings: ClassVar[Mapping[str, object]] = _NO_SETTINGS
    subject: ClassVar[LauncherSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = LauncherSubject.load(cls.launcher, cls.settings)

    test_agents_answer = contract_test(placing.check_agents_answer)
    test_calls_return = contract_test(placing.check_calls_return)
    test_failed_start = contract_test(placing.check_failed_start)
    test_release = contract_test(endings.check_release)
    test_lost_agent = contract_test(endings.check_lost_agent)
    test_close = contract_test(endings.check_close)
    test_killed_owner = contract_test(endings.check_killed_owner)
