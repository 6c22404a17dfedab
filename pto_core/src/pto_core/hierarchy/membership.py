"""Workers on other hosts that join and leave a Worker while it runs.

A running Worker has a fixed number of places for children. A Worker joins at an empty place as a
restarted child returns to its own: a new process starts, and then the driver sends it tasks. A
Worker that leaves is lost to the driver, and does not return.
"""

from __future__ import annotations

from pto_core.errors import CapacityError, UsageError, WorkerClosedError
from pto_core.hierarchy.child_group import ChildGroup
from pto_core.hierarchy.child_specs import empty_place, spec_of_worker
from pto_core.hierarchy.children import NestedWorker
from pto_core.hierarchy.failures import Failure
from pto_core.hierarchy.processes import fork_lock
from pto_core.hierarchy.settings import level_name

_GRACE_S = 2.0
_CLOSED = "this Worker was closed while a Worker joined it; create another one"


class Membership:
    """Fills and empties the places of a running Worker."""

    def __init__(self, group: ChildGroup) -> None:
        self._group = group

    def free_places(self, count: int) -> range:
        """Return the first successive empty places; raise CapacityError if there are too few."""
        specs = self._group.specs
        for first in range(len(specs) - count + 1):
            if all(spec.is_empty for spec in specs[first : first + count]):
                return range(first, first + count)
        places = sum(spec.has_relay for spec in specs)
        lacking = "none is free" if count == 1 else f"no {count} successive ones are free"
        raise CapacityError(
            f"this Worker has {places} places for Workers on other hosts, and {lacking}; create "
            "it with a larger spare_workers"
            + (", or remove one of these Workers with remove_worker" if places else ""),
            name="spare_workers",
            value=places + count,
            limit=places,
        )

    def take(self, places: range, worker: NestedWorker) -> None:
        """Assign empty places to a Worker, which gets callables and tasks after :meth:`join`."""
        group = self._group
        last = None
        for place in places:
            path = f"{group.path}/{level_name(worker.level)}{place}"
            last = spec_of_worker(worker, path, "spawn", last)
            group.set_spec(place, last)

    def join(self, places: range) -> None:
        """Start the children at these places and wait until all are ready.

        After an error the places are empty: a child that is ready already is ended. Raises the
        errors of the start of a child.
        """
        group = self._group
        try:
            with fork_lock():
                if group.is_closing:
                    raise WorkerClosedError(_CLOSED)
                for place in places:
                    group.restarts.join(place, group.specs[place], group.completed_by(place))
            for place in places:
                group.hooks.await_restart(place)
                failure = group.restarts.join_failure(place)
                if failure is not None or group.is_closing:
                    raise failure or WorkerClosedError(_CLOSED)
        except BaseException as error:
            for place in places:
                self._cancel(place, Failure.of(error))
            raise
        for place in places:
            group.driver.set_present(place, True)

    def leave(self, child: int) -> None:
        """End the Worker of a place outside of a run. Its buffers are lost."""
        group = self._group
        group.driver.set_present(child, False)
        with fork_lock():
            if group.restarts.is_restarting(child):
                group.processes.kill(child)
            is_expected = group.restarts.leave(child)
        group.control.close_all([child])
        group.processes.end_one(child, _GRACE_S)
        self._empty(child)
        if is_expected:
            group.set_empty(child, group.specs[child])

    def _cancel(self, place: int, failure: Failure) -> None:
        group = self._group
        with fork_lock():
            is_expected = group.restarts.leave(place)
            group.processes.kill(place)
        self._empty(place)
        if is_expected and not group.is_closing:
            group.set_empty(place, group.specs[place], failure)

    def _empty(self, place: int) -> None:
        group = self._group
        with fork_lock():
            launcher = group.hosts.leave(place)
            group.set_spec(place, empty_place(group.settings, group.path, place))
        if launcher is not None:
            launcher.close()


def check_can_join(worker: NestedWorker) -> None:
    """Raise UsageError for a Worker on this host."""
    if worker.settings.other_host is None:
        raise UsageError(
            "a Worker without host= or hosts= was added after init(); add it before the Worker "
            "starts, because only Workers on other hosts can join a running Worker",
            name="worker",
        )
