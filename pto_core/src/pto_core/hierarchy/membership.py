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
from pto_core.hierarchy.processes import fork_lock
from pto_core.hierarchy.settings import level_name

_GRACE_S = 2.0
_CLOSED = "this Worker was closed while a Worker joined it; create another one"


class Membership:
    """Fills and empties the places of a running Worker."""

    def __init__(self, group: ChildGroup) -> None:
        self._group = group

    def free_place(self) -> int:
        """Return the first empty place; raise CapacityError if every place has a child."""
        specs = self._group.specs
        for place, spec in enumerate(specs):
            if spec.is_empty:
                return place
        places = sum(spec.has_relay for spec in specs)
        raise CapacityError(
            f"this Worker has {places} places for Workers on other hosts, and none is free; create "
            "it with a larger spare_workers"
            + (", or remove one of these Workers with remove_worker" if places else ""),
            name="spare_workers",
            value=places + 1,
            limit=places,
        )

    def take(self, place: int, worker: NestedWorker) -> None:
        """Assign an empty place to a Worker. It receives callables and tasks after :meth:`join`."""
        group = self._group
        path = f"{group.path}/{level_name(worker.level)}{place}"
        group.set_spec(place, spec_of_worker(worker, path, "spawn"))

    def join(self, place: int) -> None:
        """Start the Worker of a place and wait until it is ready.

        After an error the place is empty. Raises the errors of the start of a child.
        """
        group = self._group
        try:
            with fork_lock():
                if group.is_closing:
                    raise WorkerClosedError(_CLOSED)
                group.restarts.join(place, group.specs[place], group.completed_by(place))
            group.hooks.await_restart(place)
        except BaseException:
            with fork_lock():
                group.restarts.leave(place)
                group.processes.kill(place)
            self._empty(place)
            raise
        failure = group.restarts.join_failure(place)
        if failure is not None or group.is_closing:
            self._empty(place)
            raise failure or WorkerClosedError(_CLOSED)
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

    def _empty(self, place: int) -> None:
        group = self._group
        with fork_lock():
            launcher = group.hosts.leave(place)
            group.set_spec(place, empty_place(group.path, place))
        if launcher is not None:
            launcher.close()


def check_can_join(worker: NestedWorker) -> None:
    """Raise UsageError for a Worker on this host, and for a template of several children."""
    if worker.settings.host is None:
        raise UsageError(
            "a Worker without host= or hosts= was added after init(); add it before the Worker "
            "starts, because only Workers on other hosts can join a running Worker",
            name="worker",
        )
    if worker.settings.count > 1:
        raise UsageError(
            f"a Worker for {worker.settings.count} hosts was added after init(); add it before the "
            "Worker starts, or add Workers with Hosts.on(num=1), which join one by one",
            name="worker",
            value=worker.settings.count,
        )
