"""The hosts of a Worker's children that launchers place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pto_core.errors import AbortedError, PtoError
from pto_core.hierarchy.child_specs import ChildSpec
from pto_core.hierarchy.remote_transport import Placements
from pto_core.interrupts import Interrupts

_STEP_S = 0.02


class ChildHosts:
    """Asks the launchers of children for hosts.

    ``specs``: by child; the owner replaces its elements. Only the thread that owns the fork lock,
    or that starts or closes the Worker, uses this object. For children without a launcher, no
    method does anything.
    """

    def __init__(self, specs: Sequence[ChildSpec], observe: Callable[..., None]) -> None:
        self._specs = specs
        self._observe = observe
        self._placed: dict[int, str] = {}  # the addresses of placed hosts, by child

    def is_placed(self, child: int) -> bool:
        """Return whether the child has a host; otherwise one is being placed.

        Does not wait. Raises ChildStartError if no host can be placed.
        """
        remote = self._specs[child].remote
        if remote is None:
            return True
        if not remote.is_placed():
            return False
        if remote.placements is not None and child not in self._placed:
            self._placed[child] = remote.address
            self._observe("pto_host_placed", child, host=remote.address)
        return True

    def await_all(self, is_cancelled: Callable[[], bool]) -> None:
        """Wait until all children have hosts.

        Raises ChildStartError. Raises AbortedError after a signal, and shortly after
        ``is_cancelled()`` becomes true.
        """
        missing = [child for child, spec in enumerate(self._specs) if spec.has_launcher]
        with Interrupts() as interrupts:
            while missing := [child for child in missing if not self.is_placed(child)]:
                if interrupts.signal is not None or is_cancelled():
                    raise AbortedError("the start was cancelled while hosts were placed")
                time.sleep(_STEP_S)

    @property
    def placing(self) -> int:
        """The number of hosts that are being placed. Any thread may ask."""
        return sum(spec.remote is not None and spec.remote.is_placing for spec in self._specs)

    def explained(self, child: int, error: BaseException) -> BaseException:
        """Return the error of a lost child, with the launcher's reason if its agent has ended."""
        remote = self._specs[child].remote
        reason = None if remote is None else remote.agent_loss()
        if reason is None or not isinstance(error, PtoError):
            return error
        fields = {name: getattr(error, name) for name in error.fields}
        return type(error)(f"{error.message}; {reason}", **fields)

    def release(self, child: int) -> None:
        """End the agent of the child's host, because the child was lost."""
        host = self._placed.pop(child, None)
        if host is not None:
            self._observe("pto_host_lost", child, host=host)
        remote = self._specs[child].remote
        if remote is not None:
            remote.release()

    def leave(self, child: int) -> Placements | None:
        """Release the host of a child that leaves.

        If no other child uses its launcher, return the launcher, for the caller to close.
        """
        self._placed.pop(child, None)
        self.release(child)
        placements = self._placements(child)
        others = (one for one in range(len(self._specs)) if one != child)
        is_used = any(self._placements(one) is placements for one in others)
        return None if is_used else placements

    def close(self) -> None:
        """End all agents, and the processes of the launchers; a second call does nothing."""
        for child in range(len(self._specs)):
            placements = self._placements(child)
            if placements is not None:
                placements.close()

    def _placements(self, child: int) -> Placements | None:
        remote = self._specs[child].remote
        return None if remote is None else remote.placements
