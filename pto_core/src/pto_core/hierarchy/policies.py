"""The placement policies of this package, as plugins of the group ``pto.schedulers``."""

from __future__ import annotations

from collections.abc import Sequence

from pto_core._hierarchy import NearInputs
from pto_core.interfaces import API_VERSION, Health, Policy


def least_loaded(candidates: Sequence[tuple[int, int]], preferred: int) -> int:
    """Return the child with the fewest frames in flight; in a tie, ``preferred`` or the first.

    The engine contains the same policy, so it does not call Python for it.
    """
    return min(candidates, key=lambda pair: (pair[1], pair[0] != preferred, pair[0]))[0]


class _Builtin:
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return a healthy state: the plugin works on every machine."""
        return Health(ok=True)


class LeastLoaded(_Builtin):
    """The plugin of the policy that balances the frames in flight."""

    name = "least_loaded"

    def policy(self) -> Policy:
        """Return the policy. It has no state, so all Workers share one object."""
        return least_loaded


class NearInputsPlugin(_Builtin):
    """The plugin of the policy that prefers the host that has the inputs of a task."""

    name = "near_inputs"

    def policy(self) -> NearInputs:
        """Return the policy of one Worker, whose driver reports the tasks that it sends."""
        return NearInputs()


least_loaded_plugin = LeastLoaded()
near_inputs = NearInputsPlugin()
