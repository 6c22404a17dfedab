"""The placement policies of this package, and the calls of a program's own policy.

The engine calls a policy during a dispatch, in which it cannot handle an exception. A
:class:`Placement` passes the facts about the task and keeps the exception.
"""

from __future__ import annotations

from collections.abc import Sequence

from pto_core._native import integer
from pto_core._worker import NearInputs
from pto_core.errors import PluginError, UsageError
from pto_core.interfaces import (
    API_VERSION,
    Candidate,
    Health,
    PlacedTask,
    Policy,
    Scheduler,
    SchedulerPlugin,
)
from pto_core.worker.settings import WorkerSettings


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


class Placement:
    """Calls ``policy``; after an exception, the default policy is used until no run is open.

    The open runs are cancelled and raise the error, which contains ``name``. The error is dropped
    when no run is open, because the frames of its traceback refer to the Worker. ``inputs`` follows
    the inputs of tasks for a :class:`Scheduler`; other policies do not pay for it.
    """

    def __init__(self, policy: Policy | Scheduler, name: str) -> None:
        self._policy = policy
        self._name = name
        self.inputs = NearInputs() if isinstance(policy, Scheduler) else None
        self._has_failed = False  # whether the policy has failed since no run was open
        self._error: UsageError | None = None  # the error of the open runs
        self.is_cancel_due = False

    def pick(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> int:
        """Return the child that the policy picks; after a failure, the default policy picks it."""
        if not self._has_failed:
            picked = self._checked(candidates, preferred, task)
            if picked is not None:
                return picked
        return least_loaded(candidates, preferred)

    def begin(self) -> None:
        """Use the program's policy again. Called when a run begins and no other run is open."""
        self._has_failed = self.is_cancel_due = False

    def end(self, *, is_last: bool) -> UsageError | None:
        """Return the error of the policy in a run that has ended, or None."""
        error = self._error
        if is_last:
            self._error = None
        return error

    def forget(self) -> None:
        """Drop the reference to the policy, because the Worker was deleted."""
        self._policy = least_loaded

    def _asked(self, candidates: Sequence[tuple[int, int]], preferred: int, task: int) -> object:
        policy = self._policy
        if not isinstance(policy, Scheduler):
            return policy(candidates, preferred)
        children = [child for child, _ in candidates]
        assert self.inputs is not None
        name, input_bytes, held = self.inputs.facts(children, task)
        offered = [
            Candidate(child, in_flight, held_bytes)
            for (child, in_flight), held_bytes in zip(candidates, held, strict=True)
        ]
        return policy.pick(offered, preferred, PlacedTask(task, name, input_bytes))

    def _checked(
        self, candidates: Sequence[tuple[int, int]], preferred: int, task: int
    ) -> int | None:
        try:
            picked = self._asked(candidates, preferred, task)
        except BaseException as error:  # noqa: BLE001 - it becomes the error of the run
            self._fail(
                f"the {self._name} raised {type(error).__name__}: {error}; a policy "
                "returns one of the children that it receives",
                error,
            )
            return None
        children = [child for child, _ in candidates]
        child = integer(picked, 0, 2**31 - 1)
        if child in children:
            return child
        self._fail(
            f"the {self._name} picked {picked!r}, which has no free space or is not a child; "
            f"return one of {children}"
        )
        return None

    def _fail(self, message: str, cause: BaseException | None = None) -> None:
        self._has_failed = self.is_cancel_due = True
        self._error = UsageError(message, name="policy")
        self._error.__cause__ = cause


def policy_of(plugin: SchedulerPlugin) -> Policy | Scheduler:
    """Return a new policy of a plugin. Raises PluginError, which names the plugin."""
    try:
        policy = plugin.policy()
    except Exception as error:
        raise PluginError(
            f"policy() of the scheduler plugin {plugin.name!r} raised {type(error).__name__}: "
            f"{error}; update or uninstall the plugin",
        ) from error
    if callable(policy) or isinstance(policy, Scheduler):
        return policy
    raise PluginError(
        f"policy() of the scheduler plugin {plugin.name!r} returned {policy!r}, which is neither a "
        "function nor has the method pick; update or uninstall the plugin",
    )


def placement_of(
    settings: WorkerSettings, policy: Policy | Scheduler | None, *, has_relays: bool
) -> tuple[Placement | None, NearInputs | None]:
    """Return the object that calls the policy, and the record of inputs that the driver fills.

    The first is None for a policy of the core. ``policy``: the policy of the program; None selects
    the policy of the settings, or the default.
    """
    name = f"placement policy {getattr(policy, '__qualname__', type(policy).__qualname__)}"
    if policy is None and settings.policy is not None:
        policy = policy_of(settings.policy)
        name = f"placement policy of the plugin {settings.policy.name!r}"
    if policy is None:
        policy = NearInputs() if has_relays else least_loaded
    if isinstance(policy, NearInputs):
        return None, policy
    if policy is least_loaded:
        return None, None
    placement = Placement(policy, name)
    return placement, placement.inputs
