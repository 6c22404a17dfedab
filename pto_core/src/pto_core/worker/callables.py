"""Registration of callables with a Worker, and their delivery to its children."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pto_core._native import integer
from pto_core._worker import CallableHandle, CallableSpace
from pto_core.errors import CapacityError, UsageError
from pto_core.errors.values import shown
from pto_core.worker.hosts import RemoteCallable
from pto_core.worker.life_cycle import WorkerState
from pto_core.worker.registry import Registration
from pto_core.worker.serialisation import import_path, is_of_main
from pto_core.worker.tasks import Task
from pto_core.worker.worker_node import WorkerNode


class Callables:
    """Registers callables, removes registrations, and finds handles."""

    def __init__(self, node: WorkerNode) -> None:
        self._node = node

    def register(
        self, target: object, *, serialise: bool, workers: Iterable[int] | None = None
    ) -> CallableHandle:
        """Register a callable; see ``Worker.register``."""
        with self._node.changes.entered("register"):
            return self._register(target, serialise=serialise, workers=workers).handle

    def unregister(self, handle: CallableHandle) -> None:
        """Remove a registration; see ``Worker.unregister``."""
        node = self._node
        with node.changes.entered("unregister"):
            node.life.settled("unregister")
            node.check_outside_run("unregister")
            removed = node.registry.remove(handle)
            try:
                # another thread may have begun a run since the check above
                node.check_outside_run("unregister")
            except UsageError:
                node.registry.add(removed)
                node.registry.publish(removed)
                raise
            children = node.children
            if children is not None and not node.registry.has(removed.identity.digest):
                children.forget(removed)

    def submittable(
        self, task: object, *, is_captured: bool = False
    ) -> tuple[CallableHandle, Any, Registration | None]:
        """Return a callable's handle and target, and register the callable if necessary.

        The third object is a registration that the submitted task must keep, or None. A replay may
        submit a captured task at any time, so its registration ends with the Worker. Raises
        UsageError.
        """
        registry = self._node.registry
        if isinstance(task, CallableHandle):
            return task, registry.target_of(task), None
        known = registry.current(task)
        if known is None or (is_captured and known.is_temporary):
            with self._node.changes.entered("submit"):
                self._release()
                known = None if is_captured else registry.current(task)
                known = known or self._register(task, serialise=False, is_of_submit=not is_captured)
        return known.handle, task, None if known.references is None else known

    def release(self) -> None:
        """Remove the callables of submits that nothing keeps, also from the children."""
        with self._node.changes.entered("session"):
            self._release()

    def _release(self) -> None:
        children = self._node.children
        gone = self._node.registry.released()
        if children is not None:
            for one in gone:
                children.forget(one, waits=False)

    def _register(
        self,
        target: object,
        *,
        serialise: bool,
        workers: Iterable[int] | None = None,
        is_of_submit: bool = False,
    ) -> Registration:
        chosen = _checked_workers(target, workers, self._node.remote_ids)
        life, registry = self._node.life, self._node.registry
        while True:
            is_new = life.settled("register") is WorkerState.NEW
            inherits = is_new and self._node.settings.config["start_method"] == "fork"
            is_known = None if is_new else self._inherited_by_children()
            is_main = isinstance(target, Task) and is_of_main(import_path(target))
            differs = is_known is not None and is_main and not is_known(target)
            made = registry.make(
                target,
                serialise=serialise or differs,
                inherits=inherits,
                workers=chosen,
                is_of_submit=is_of_submit,
                is_known=None if self._node.remote_ids else is_known,
            )
            self._check_space(made)
            if is_new:
                registry.add(made)
                if life.is_new:
                    break
                # The Worker has begun to start, and its children may not have received the
                # callable.
                registry.discard(made)
            else:
                self._deliver(made)
                break
        registry.publish(made)
        life.check_open()
        return made

    def _inherited_by_children(self) -> Callable[[Any], bool] | None:
        """Return the test whether SUB children have an object of the main module, if there are."""
        values = self._node.started_children().memory.values
        return None if values is None else values.inherits

    def _deliver(self, made: Registration) -> None:
        registry = self._node.registry
        # If all children have the callable already, deliver nothing. A remote callable is always
        # delivered, because each registration may name other workers.
        is_known = made.workers is None and registry.has(made.identity.digest)
        registry.add(made)
        try:
            if not is_known:
                self._node.started_children().deliver(made)
        except CapacityError as error:
            registry.discard(made)
            raise CapacityError(
                f"{made.identity.name} cannot be sent to the children with the values that it "
                f"uses: {error}",
                name=made.identity.name,
                value=error.value,
                limit=error.limit,
            ) from error
        except BaseException:
            registry.discard(made)
            raise

    def _check_space(self, made: Registration) -> None:
        is_for_chips = made.identity.space == CallableSpace.LOCAL_CHIP
        if is_for_chips and not self._node.settings.device_ids:
            raise UsageError(
                f"{made.identity.name} is for chips, but this Worker has none: pass device_ids to "
                "a Worker of level 3 and register it there",
                name="target",
                value=made.target,
            )


def _checked_workers(
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
