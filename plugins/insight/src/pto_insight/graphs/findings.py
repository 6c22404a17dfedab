"""The findings of a check: races, differences between declarations and accesses, and fixes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pto_core.errors import RaceError
from pto_core.notebooks import html_table
from pto_insight.graphs.log import AccessLog
from pto_insight.graphs.logged_graph import Access, LoggedTask


@dataclass(frozen=True)
class Race:
    """Two unordered tasks that name the same bytes, of which at least one task writes them.

    ``first`` is the earlier submit. ``begin`` to ``end`` are the bytes of ``buffer`` that both
    name, of which ``shared_bytes`` are in both. ``others`` counts further pairs of arguments of the
    same two tasks. ``fix``: the change that orders them. ``is_implied``: the fix of another race
    orders them, too.
    """

    first: LoggedTask
    second: LoggedTask
    first_tag: str
    second_tag: str
    first_place: str
    second_place: str
    buffer: str
    begin: int
    end: int
    shared_bytes: int
    others: int
    fix: str
    is_implied: bool = False

    @property
    def name(self) -> str:
        """The labels of the two tasks."""
        return f"{self.first.label} and {self.second.label}"

    @property
    def source(self) -> tuple[str, ...]:
        """The key that is equal for all races of the same two source lines."""
        first, second = self.first, self.second
        tags = self.first_tag, self.second_tag
        return first.where, first.kernel, second.where, second.kernel, *tags

    def __str__(self) -> str:
        more = f" (and {self.others} more pairs of arguments)" if self.others else ""
        return "\n".join(
            [
                f"{self.name} share {self.shared_bytes} bytes of "
                f"{self.buffer} (bytes {self.begin}:{self.end}){more}",
                _line(self.first, self.first_place, self.first_tag),
                _line(self.second, self.second_place, self.second_tag),
                f"  fix: {self.fix}",
            ]
        )


@dataclass(frozen=True)
class Mismatch:
    """Bytes that a task touches, or does not write, against its declaration.

    ``task``: None if no task writes bytes of an output of the run. ``begin`` and ``end`` are
    offsets in ``buffer``, and may be outside of it; addresses if ``buffer`` is empty, because the
    bytes are near no buffer. ``count``: the number of bytes, which need not
    be adjacent. ``verb``: "reads", "writes" or "does not write".
    """

    task: LoggedTask | None
    buffer: str
    begin: int
    end: int
    count: int
    verb: str
    why: str

    @property
    def name(self) -> str:
        """The label of the task, or "no task"."""
        return self.task.label if self.task else "no task"

    @property
    def source(self) -> tuple[str, ...]:
        """The key that is equal for all findings of the same source line."""
        if self.task is None:
            return ("",)
        return self.task.where, self.task.kernel, self.buffer, self.verb

    def __str__(self) -> str:
        where = f"  {self.task.where}" if self.task and self.task.where else ""
        noun = "byte" if self.count == 1 else "bytes"
        place = f"of {self.buffer} (bytes {self.begin}:{self.end})"
        if not self.buffer:
            place = f"at {self.begin:#x} and after"
        return f"{self.name} {self.verb} {self.count} {noun} {place}: {self.why}{where}"


@dataclass(frozen=True)
class Findings:
    """The result of a check. Its text lists one finding of each kind and source line.

    ``races``: pairs of tasks that nothing orders. ``declared``: pairs that the program excepts with
    OUTPUT_EXISTING or NO_DEP. ``unread``: outputs that were allocated and that no task reads.
    ``uninitialised_reads``: reads of memory that neither the run nor an earlier task has written.
    ``is_complete``: False if there are more pairs than the limit.

    If accesses were measured: ``outside``: accesses outside of the buffers that the task names, or
    outside of its declared regions. ``undeclared``: writes to bytes that the task declares as
    input. ``unwritten_outputs``: bytes of declared outputs that no task writes. ``possible``: pairs
    of tasks that nothing orders and that access the same pages, if only the pages are known.
    ``measured_by_pages``: the number of tasks of which only the pages are known, because their
    kernels are binaries. ``unmeasured``: the number of tasks whose accesses are not known at all.
    """

    races: tuple[Race, ...]
    declared: tuple[Race, ...]
    unread: tuple[Access, ...]
    uninitialised_reads: tuple[Access | Mismatch, ...]
    is_complete: bool
    outside: tuple[Mismatch, ...] = ()
    undeclared: tuple[Mismatch, ...] = ()
    unwritten_outputs: tuple[Mismatch, ...] = ()
    possible: tuple[Race, ...] = ()
    measured_by_pages: int = 0
    unmeasured: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that can make a result wrong.

        Such findings are races, accesses outside of buffers, undeclared writes, bytes of outputs
        that were not written, and reads of memory that nothing wrote. An output that no task reads,
        a pair that the program excepts, and a possible race are hints.
        """
        return not (self._conflicts or self.unwritten_outputs or self.uninitialised_reads)

    @property
    def _conflicts(self) -> tuple[Race | Mismatch, ...]:
        return (*self.races, *self.outside, *self.undeclared)

    def raise_for_races(self) -> None:
        """Raise RaceError if tasks race or touch bytes that they do not declare.

        Its notes list up to 20 of these findings.
        """
        found = self._conflicts
        if not found:
            return
        if self.races:
            race = next(race for race in self.races if not race.is_implied)
            more = "" if self.is_complete else " or more"
            first, second = race.first.id, race.second.id
            noun = (
                "pair of tasks races"
                if (len(self.races), more) == (1, "")
                else "pairs of tasks race"
            )
            text = (
                f"{len(self.races)}{more} {noun}; {race.name} share {race.shared_bytes} bytes of "
                f"{race.buffer}; {race.fix}"
            )
        else:
            mismatch = (*self.outside, *self.undeclared)[0]
            assert mismatch.task is not None
            first = second = mismatch.task.id
            text = str(mismatch)
        error = RaceError(text, races=len(self.races), first=first, second=second)
        for one in found[:20]:
            error.add_note(str(one))
        raise error

    def __str__(self) -> str:
        parts = ["\n".join([title, *_listed(found)]) for title, found in self._kinds()]
        return "\n\n".join([*(parts or ["no races"]), *self._notes()])

    def _repr_html_(self) -> str:
        rows = [(title, line) for title, found in self._kinds() for line in _listed(found)]
        notes = [("note", note) for note in self._notes()]
        return html_table("Findings", [*(rows or [("races", "none")]), *notes])

    def _kinds(self) -> Iterator[tuple[str, Sequence[Race | Mismatch | Access]]]:
        """Yield the title and the findings of each kind that was found."""
        for title, found in (
            ("races", self.races),
            ("unordered by your declaration (OUTPUT_EXISTING, NO_DEP)", self.declared),
            ("outputs that no task reads", self.unread),
            ("reads of memory that nothing wrote", self.uninitialised_reads),
            ("accesses outside of the buffers or declared regions of a task", self.outside),
            ("writes to inputs", self.undeclared),
            ("bytes of outputs that were not written", self.unwritten_outputs),
            ("possible races (coarse: known by pages)", self.possible),
        ):
            if found:
                yield f"{title}: {len(found)}", found

    def _notes(self) -> Iterator[str]:
        if not self.is_complete:
            yield "there are more pairs; these are the first ones"
        if self.measured_by_pages:
            yield (
                f"measured by pages only: {self.measured_by_pages} tasks (binary kernels); build "
                "them from source for exact bytes"
            )
        if self.unmeasured:
            yield (
                f"not measured: {self.unmeasured} tasks (Python kernels, or binaries outside of "
                "deterministic mode); the check uses what they declare"
            )


def _listed(found: Sequence[Race | Mismatch | Access]) -> Iterator[str]:
    """Print one finding of each source line, and count the others. Print implied races last."""
    groups: dict[object, list[Race | Mismatch | Access]] = {}
    implied = 0
    for index, one in enumerate(found):
        if isinstance(one, Race) and one.is_implied:
            implied += 1
        else:
            groups.setdefault(one.source if one.source[0] else index, []).append(one)
    for first, *others in groups.values():
        yield str(first)
        if others:
            names = ", ".join(other.name for other in others[:3])
            more = ", ..." if len(others) > 3 else ""
            yield f"  and {len(others)} more from the same source lines: {names}{more}"
    if implied:
        noun = "pair" if implied == 1 else "pairs"
        yield f"the fixes above order {implied} more {noun}"


def _line(task: LoggedTask, place: str, tag: str) -> str:
    return f"  {task.label}: {place} [{tag}]" + (f"  {task.where}" if task.where else "")


_NEAR = 32


def missing_edge(log: AccessLog, first: LoggedTask, second: LoggedTask) -> str:
    """Return the change that orders two tasks, in the language of the program."""
    edge = f"add an edge from {first.label} to {second.label}"
    if not log.has_accesses:
        return edge
    if log.is_of_host[second.index]:
        return (
            f"name the memory in {first.label} without MANUAL and manual_dep, so that "
            f"{second.kernel} waits for it"
        )
    if second.file and second.file.endswith(".py"):
        edge = f"submit {second.label} with after={first.label}"
    elif log.is_of_2026_08(second.index):
        edge = f"name {first.label} in set_dependencies() or add_dep() of {second.label}"
        if log.states_edges(first.index) or log.states_edges(second.index):
            return edge
    elif second.file:
        edge = f"call pto2_rt_add_dep for {first.label} and {second.label} after the second submit"
    return edge if log.is_full else f"run with {_full_hazards(second)}, or {edge}"


def existing_output(second: LoggedTask) -> str:
    """Return the change of a declaration OUTPUT_EXISTING that leaves two writers unordered."""
    return f"declare it OUTPUT or INOUT in {second.label}, with {_full_hazards(second)}"


def mark_implied(races: Iterable[Race], is_before: Callable[[int, int], bool]) -> tuple[Race, ...]:
    """Mark the races that the fix of another race orders, too.

    An edge between two tasks orders all tasks up to the first one with all tasks from the second
    one on. A race is compared with the nearest ones that share a task with it.
    """
    found = list(races)
    firsts = _sorted_by_key((race.second.index, race.first.index) for race in found)
    seconds = _sorted_by_key((race.first.index, race.second.index) for race in found)

    def is_implied(race: Race) -> bool:
        first, second = race.first.index, race.second.index
        if first == second:  # two blocks of one task
            return False
        after = bisect_right(firsts[second], first)
        before = bisect_left(seconds[first], second)
        return any(is_before(first, one) for one in firsts[second][after : after + _NEAR]) or any(
            is_before(one, second) for one in seconds[first][max(0, before - _NEAR) : before]
        )

    return tuple(replace(race, is_implied=is_implied(race)) for race in found)


def _sorted_by_key(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    values: dict[int, list[int]] = defaultdict(list)
    for key, value in sorted(set(pairs)):
        values[key].append(value)
    return values


def _full_hazards(task: LoggedTask) -> str:
    is_python = task.file is None or task.file.endswith(".py")
    return 'hazards="full"' if is_python else "--hazards full"
