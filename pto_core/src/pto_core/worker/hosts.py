"""The descriptions of hosts that a launcher places, and of Workers and functions on other hosts."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pto_core._native import integer
from pto_core.config import Config
from pto_core.config.options import HOSTS_MAX, resource_amounts
from pto_core.errors.values import invalid_value
from pto_core.worker.serialisation import checked_path


@dataclass(frozen=True)
class Hosts:
    """Hosts that a launcher places, for the argument ``hosts`` of a Worker. See :meth:`on`."""

    launcher: str | None
    num: int | None
    resources: Mapping[str, float] | None

    @classmethod
    def on(
        cls,
        launcher: str | None = None,
        num: int | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> Hosts:
        """Describe ``num`` hosts of the launcher with this name.

        ``resources``: the amounts that each host must have, such as ``{"CPU": 2}``. An argument
        that is None has the value of a setting: ``launcher``, ``hosts``, ``host_resources``.
        Raises UsageError.
        """
        if launcher is not None and not isinstance(launcher, str):
            raise invalid_value(
                "launcher",
                launcher,
                "pass the name of a launcher, such as 'local', and the number of hosts as num",
            )
        count = None if num is None else integer(num, 1, HOSTS_MAX)
        if num is not None and count is None:
            raise invalid_value("num", num, f"pass a number of hosts from 1 to {HOSTS_MAX}")
        return cls(launcher, count, None if resources is None else _amounts(resources))

    def completed(self, config: Config) -> HostRequest:
        """Return the request to the launcher; settings replace the arguments that are None."""
        resources = self.resources
        if resources is None:
            text = config["host_resources"]
            resources = {} if text is None else resource_amounts(text)
        return HostRequest(
            self.launcher or config["launcher"], self.num or config["hosts"], resources
        )


@dataclass(frozen=True)
class HostRequest:
    """``num`` hosts of a launcher, each with the resources."""

    launcher: str
    num: int
    resources: Mapping[str, float]


def _amounts(resources: Mapping[str, float]) -> dict[str, float]:
    def is_amount(name: Any, amount: Any) -> bool:
        if isinstance(amount, bool) or not isinstance(amount, numbers.Real):
            return False
        try:
            return isinstance(name, str) and 0 <= float(amount) < math.inf
        except OverflowError:
            return False

    if isinstance(resources, Mapping) and all(is_amount(*one) for one in resources.items()):
        return {name: float(amount) for name, amount in resources.items()}
    raise invalid_value("resources", resources, "pass a dict with amounts, such as {'CPU': 2}")


@dataclass(frozen=True)
class RemoteCallable:
    """A function on another host, by its import path ``"module:qualname"``.

    It is imported there only. Pass it to ``Worker.register`` with ``workers``, the child ids of the
    hosts. Raises UsageError for a text that is no import path.
    """

    path: str

    def __post_init__(self) -> None:
        checked_path(self.path)

    @property
    def name(self) -> str:
        """The name of the function in its module."""
        return self.path.partition(":")[2]


@dataclass(frozen=True)
class RemoteWorkerSpec:
    """A Worker of level 3 on another host, for ``Worker.add_remote_worker``.

    Each member has the meaning of the argument of ``Worker`` with the same name. ``address``, the
    address of the agent, has the meaning of ``host``.
    """

    address: str
    platform: str | None = field(default=None, kw_only=True)
    runtime: str | None = field(default=None, kw_only=True)
    device_ids: Iterable[int] = field(default=(), kw_only=True)
    num_sub_workers: int = field(default=0, kw_only=True)
    keys: str | os.PathLike[str] | None = field(default=None, kw_only=True)
