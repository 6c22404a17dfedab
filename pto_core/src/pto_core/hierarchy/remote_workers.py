"""The published descriptions of a Worker on another host and of a function there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.values import shown
from pto_core.hierarchy.serialisation import checked_path


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


def checked_workers(
    target: object, workers: Iterable[int] | None, remote: Iterable[int]
) -> tuple[int, ...] | None:
    """Check the argument ``workers`` of a registration and return it; raise UsageError.

    ``remote``: the child ids of the Workers on other hosts.
    """
    if not isinstance(target, RemoteCallable):
        if workers is not None:
            raise UsageError(
                f"workers was passed, but {shown(target)} is not a RemoteCallable; register it "
                "without workers, for all children",
                name="workers",
                value=workers,
            )
        return None
    known = tuple(remote)
    given = () if workers is None else tuple(workers)
    wanted = tuple(child for worker in given if (child := integer(worker, 0, 2**31 - 1)) in known)
    if not wanted or len(wanted) != len(given):
        raise UsageError(
            f"workers is {shown(workers)} for the remote function {target.path!r}; pass a list "
            f"with ids of Workers on other hosts; this Worker has {list(known)}",
            name="workers",
            value=workers,
        )
    return wanted
