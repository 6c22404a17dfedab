"""The tasks, scopes and clusters of a program, and its edges with the reason of each edge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pto_core.errors import UsageError
from pto_core.errors.values import suggestion
from pto_insight.graphs.analysis import EDGE, NO_ACCESS, REASON, VERBS, LogAnalysis, Why
from pto_insight.graphs.log import HOST_CALLS, AccessLog, Rows
from pto_insight.graphs.places import TAGS, Places

_EDGE, _SCOPE_BEGIN, _SCOPE_END, _CLUSTER, _CLUSTER_FREED, _ON_CLUSTER = range(6)


@dataclass(frozen=True)
class Scope:
    """A scope. Its tasks, including tasks of inner scopes, are ``first`` to ``end`` - 1."""

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


@dataclass(frozen=True)
class LoggedTask:
    """A task of the graph. ``index`` counts submits; a block task is one task.

    An access of the orchestration is a task, too. ``label``: the kernel and a number, such as
    ``add#3``. The number counts submits, or accesses of the orchestration. ``name`` is the name in
    error messages. ``scope``: the index of the innermost scope, or None.
    ``clusters``: the numbers of the cluster allocations on which it runs. ``members``: the number
    of members of a group; 0 for any other task.
    """

    index: int
    id: int
    label: str
    name: str
    kernel: str
    core: str
    blocks: int
    members: int
    file: str | None
    line: int | None
    scope: int | None
    clusters: tuple[int, ...]

    @property
    def where(self) -> str:
        """The source position of the submit, or an empty text."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass(frozen=True)
class Reason:
    """A reason of an edge. ``first`` and ``second`` are the places that both tasks name.

    ``is_conservative``: the places are not comparable, so only their byte hulls are known to
    overlap. ``shared_bytes`` is the exact number of bytes that both name.
    """

    why: Why
    first: str | None
    second: str | None
    first_tag: str | None
    second_tag: str | None
    is_conservative: bool
    shared_bytes: int

    def __str__(self) -> str:
        if self.why is Why.EXPLICIT:
            return "explicit edge"
        if self.why is Why.RETAINING:
            return "explicit edge, which also retains the memory"
        if self.why is Why.HOST:
            return "submitted after the access of the orchestration"
        if self.why is Why.CLUSTER:
            return "runs on a cluster that was freed and allocated again in between"
        note = ""
        if self.is_conservative:
            note = " (by byte hull" + ("" if self.shared_bytes else "; no byte is shared") + ")"
        verb, before = VERBS[self.why]
        return (
            f"{verb} {self.second} [{self.second_tag}], "
            f"{before} as {self.first} [{self.first_tag}]{note}"
        )


@dataclass(frozen=True)
class Edge:
    """An edge: ``first`` ends before ``second`` starts. ``is_redundant``: other edges imply it.

    ``is_conservative``: every reason is. ``is_disjoint``: in addition, no byte is shared.
    """

    first: int
    second: int
    is_redundant: bool
    reasons: tuple[Reason, ...]

    @property
    def is_conservative(self) -> bool:
        """Whether only byte hulls are known to overlap."""
        return all(reason.is_conservative for reason in self.reasons)

    @property
    def is_disjoint(self) -> bool:
        """Whether the edge orders tasks that share no byte."""
        return self.is_conservative and not any(reason.shared_bytes for reason in self.reasons)


@dataclass(frozen=True)
class Access:
    """An access of one task that is reported.

    ``is_certain``: whether it writes all of its place. A write of the orchestration to a place with
    several elements is not: it sets one of them, and the log does not have its index.
    """

    task: LoggedTask
    place: str
    tag: str
    is_certain: bool = True

    @property
    def name(self) -> str:
        """The label of the task."""
        return self.task.label

    @property
    def source(self) -> tuple[str, ...]:
        """The key that is equal for all accesses of the same source line."""
        return self.task.where, self.task.kernel, self.tag

    def __str__(self) -> str:
        return f"{self.task.label}: {self.place} [{self.tag}]" + (
            f"  {self.task.where}" if self.task.where else ""
        )


class LoggedGraph:
    """The tasks and edges of a program, computed from the accesses of one run."""

    def __init__(self, log: AccessLog) -> None:
        self.log = log
        self._analysis = LogAnalysis(log)

    def __len__(self) -> int:
        return len(self.log.tasks)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} tasks, {len(self.edge_rows)} edges>"

    @cached_property
    def structure(self) -> Structure:
        """The scopes and clusters of the tasks."""
        return Structure(self.log)

    @cached_property
    def edge_rows(self) -> Rows:
        """The edges as an array with the fields first, second and is_redundant."""
        return np.frombuffer(self._analysis.edges(), EDGE)

    @cached_property
    def reason_rows(self) -> Rows:
        """The reasons of all edges as an array, ordered as the edges are."""
        return np.frombuffer(self._analysis.reasons(), REASON)

    @cached_property
    def unwritten(self) -> Rows:
        """The accesses that read memory that no earlier task wrote."""
        return np.frombuffer(self._analysis.unwritten(), np.uint32)

    @cached_property
    def extents(self) -> Rows:
        """The first address of each access and the address after the last, as the analysis uses."""
        return np.frombuffer(self._analysis.extents(), np.uint64).reshape(-1, 2)

    @cached_property
    def places(self) -> Places:
        """The memory that accesses name."""
        return Places(self.log, self.extents)

    @cached_property
    def task_of_access(self) -> Rows:
        """The task of each access."""
        return np.searchsorted(
            self.log.tasks["accesses"], np.arange(len(self.log.accesses)), side="right"
        )

    def task(self, index: int) -> LoggedTask:
        """Return one task. Raises UsageError if there is none with this index."""
        row = self.log.tasks[self._checked(index)]
        number = int(row["id"])
        file = self.log.files[int(row["file"]) - 1] if row["file"] else None
        is_of_worker = self.log.blocks == 0
        name = f"task {number // 4} of ring {number % 4}" if self.log.has_ring_ids else ""
        return LoggedTask(
            index=index,
            id=number,
            label=self.log.label(index),
            name=self.log.label(index) if number < 0 else name or f"task {number}",
            kernel=self.log.kernel_names[index],
            core=self.log.cores(index),
            blocks=0 if is_of_worker else int(row["blocks"]),
            members=int(row["blocks"]) if is_of_worker else 0,
            file=file,
            line=int(row["line"]) if file else None,
            scope=self.structure.scope_of(index),
            clusters=self.structure.clusters_of(index),
        )

    @property
    def tasks(self) -> Iterator[LoggedTask]:
        """All tasks, in the order of submits."""
        return map(self.task, range(len(self)))

    @property
    def edges(self) -> Iterator[Edge]:
        """All edges, by second task."""
        return map(self.edge_at, range(len(self.edge_rows)))

    def edge_at(self, row: int) -> Edge:
        """Return the edge of one row of ``edge_rows``."""
        edge = self.edge_rows[row]
        first, end = self.reason_bounds[row : row + 2]
        return Edge(
            int(edge["first"]),
            int(edge["second"]),
            bool(edge["is_redundant"]),
            tuple(map(self._reason, self.reason_rows[first:end])),
        )

    @cached_property
    def reason_bounds(self) -> Rows:
        """The index of the first reason of each edge, and the number of reasons."""
        rows = self.reason_rows
        key = rows["second"].astype(np.uint64) << np.uint64(32) | rows["first"]
        edges = self.edge_rows
        wanted = edges["second"].astype(np.uint64) << np.uint64(32) | edges["first"]
        return np.append(np.searchsorted(key, wanted), len(rows))

    def _reason(self, row: Any) -> Reason:
        first, second = int(row["first_access"]), int(row["second_access"])
        has_places = NO_ACCESS not in (first, second)
        return Reason(
            why=Why(int(row["why"])),
            first=self.places.of(first).text if has_places else None,
            second=self.places.of(second).text if has_places else None,
            first_tag=self.tag(first) if has_places else None,
            second_tag=self.tag(second) if has_places else None,
            is_conservative=bool(row["is_conservative"]),
            shared_bytes=int(row["shared_bytes"]),
        )

    def tag(self, access: int) -> str:
        """Return the name of the tag of an access."""
        return TAGS[int(self.log.accesses[access]["tag"])]

    def access(self, access: int) -> Access:
        """Return an access with its task."""
        task = self.task(int(self.task_of_access[access]))
        row = self.log.accesses[access]
        is_one_of_many = (
            self.log.is_of_host[task.index] and row["shapes"][: row["ndims"]].prod() > 1
        )
        return Access(task, self.places.of(access).text, self.tag(access), not is_one_of_many)

    def is_before(self, first: int, second: int) -> bool:
        """Return whether task ``first`` ends before task ``second`` starts, in every run."""
        return self._analysis.is_before(self._checked(first), self._checked(second))

    def conflict_rows(self, limit: int) -> tuple[bytes, bool]:
        """Return at most ``limit`` conflicts as packed rows, and whether these are all."""
        return self._analysis.conflicts(limit)

    def find(self, text: str | int) -> int:
        """Return the index of a task: a number, ``kernel#number``, or a kernel with one task.

        Raises UsageError if there is no such task, or if it runs another kernel.
        """
        if isinstance(text, int):
            return self._checked(text)
        kernel, _, number = text.rpartition("#")
        if number.isdecimal():
            is_wanted = self.log.numbers == int(number)
            is_wanted &= self.log.is_of_host == (kernel in HOST_CALLS)
            if not is_wanted.any():
                raise self._missing(number)
            task = self.task(int(is_wanted.argmax()))
            if kernel not in ("", task.kernel):
                raise UsageError(
                    f"task {number} is {task.label}, not {text}", name="task", value=text
                )
            return task.index
        names = self.log.kernel_names
        found = [index for index, name in enumerate(names) if name == text]
        if len(found) == 1:
            return found[0]
        known = sorted({*self.log.kernels.values(), *names})
        if not found:
            raise UsageError(
                f"no task is called {text!r}{suggestion(text, known)}; kernels: {', '.join(known)}",
                name="task",
                value=text,
            )
        raise UsageError(
            f"{len(found)} tasks run the kernel {text!r}; name one by its number, such as "
            f"{self.log.label(found[0])}",
            name="task",
            value=text,
        )

    def _checked(self, index: int) -> int:
        if 0 <= index < len(self):
            return index
        raise self._missing(index)

    def _missing(self, number: object) -> UsageError:
        return UsageError(
            f"there is no task {number}; the graph has the tasks 0 to {len(self) - 1}"
            if len(self)
            else "the graph has no tasks",
            name="task",
            value=number,
        )
