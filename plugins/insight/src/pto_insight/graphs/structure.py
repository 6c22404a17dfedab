"""The scopes and clusters of a log, and the tasks in them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from pto_insight.graphs.log import AccessLog

_EDGE, _SCOPE_BEGIN, _SCOPE_END, _CLUSTER, _CLUSTER_FREED, _ON_CLUSTER = range(6)


@dataclass(frozen=True)
class Scope:
    """A scope: its tasks are those from ``first`` to ``end`` - 1, with those of inner scopes."""

    index: int
    parent: int | None
    file: str | None
    line: int | None
    first: int
    end: int


@dataclass(frozen=True)
class Cluster:
    """An allocation of a cluster, and the tasks that run on it."""

    number: int
    file: str | None
    line: int | None
    tasks: tuple[int, ...]


class Structure:
    """The scopes and the clusters of a program."""

    def __init__(self, log: AccessLog) -> None:
        self._log = log
        index_of = {int(task_id): index for index, task_id in enumerate(log.tasks["id"])}
        on_cluster: dict[int, list[int]] = defaultdict(list)
        self._clusters_of: dict[int, list[int]] = defaultdict(list)
        positions: dict[int, tuple[str | None, int | None]] = {}
        begun: list[tuple[int | None, tuple[str | None, int | None], int]] = []
        ends: dict[int, int] = {}
        open_scopes: list[int] = []
        for event in log.events[log.events["kind"] != _EDGE]:
            kind, first = int(event["kind"]), int(event["first"])
            position = self._position(int(event["file"]), int(event["line"]))
            if kind == _SCOPE_BEGIN:
                parent = open_scopes[-1] if open_scopes else None
                open_scopes.append(len(begun))
                begun.append((parent, position, int(event["tasks"])))
            elif kind == _SCOPE_END and open_scopes:
                ends[open_scopes.pop()] = int(event["tasks"])
            elif kind == _CLUSTER:
                positions[first] = position
            elif kind == _ON_CLUSTER:
                task = index_of[int(event["second"])]
                if task not in on_cluster[first]:
                    on_cluster[first].append(task)
                    self._clusters_of[task].append(first)
        self.scopes = tuple(
            Scope(index, parent, *position, first, ends.get(index, len(log.tasks)))
            for index, (parent, position, first) in enumerate(begun)
        )
        self.clusters = tuple(
            Cluster(number, *position, tuple(on_cluster[number]))
            for number, position in positions.items()
        )
        self._scope_of = [-1] * len(log.tasks)
        for scope in self.scopes:  # an inner scope comes after its outer scope
            self._scope_of[scope.first : scope.end] = [scope.index] * (scope.end - scope.first)

    def scope_of(self, task: int) -> int | None:
        """Return the innermost scope of a task; None if it is in none."""
        scope = self._scope_of[task]
        return None if scope < 0 else scope

    def clusters_of(self, task: int) -> tuple[int, ...]:
        """Return the numbers of the clusters on which a task runs."""
        return tuple(self._clusters_of.get(task, ()))

    def _position(self, file: int, line: int) -> tuple[str | None, int | None]:
        return (self._log.files[file - 1], line) if file else (None, None)
