"""Handle submits: checks, dependencies, and allocations.

All checks that can refuse or block a submit come before the first change of state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from pto_core.errors import UsageError
from pto_core.worker.states import Reference, TaskEvent
from pto_devkit.abi import Tag
from pto_devkit.engine.interface import (
    CHILD_MEMORY_END,
    NONE,
    Allocate,
    Blocked,
    Hazards,
    Kind,
    Known,
    Submit,
    Submitted,
    Tensor,
)
from pto_devkit.engine.reference.core import Core, Edge, Run, Slab, Task, rounded, spec_of
from pto_devkit.engine.reference.endings import Endings
from pto_devkit.engine.reference.regions import Region, fits, region_of

KEY_BIT = 1 << 63
"""The first address for OUTPUT tensors of size 0. No memory has such an address."""
WRITES = (Tag.OUTPUT, Tag.INOUT, Tag.OUTPUT_EXISTING)


def is_allocated(tensor: Tensor) -> bool:
    """Return whether the engine allocates the tensor."""
    return tensor.tag is Tag.OUTPUT and tensor.address == 0


@dataclass(slots=True)
class Draft:
    """A submit that has not changed the state yet."""

    nbytes: int
    """The number of bytes to reserve."""
    begin: int
    """The offset of the reservation in the ring of the scope."""
    edges: dict[int, Edge] = field(default_factory=dict)
    owners: set[int] = field(default_factory=set)
    addresses: list[list[int]] = field(default_factory=list)
    allocated: list[int] = field(default_factory=list)
    keys: int = 0
    """The number of allocated tensors of size 0."""
    placed: int = 0
    """The number of bytes of the reservation that are already assigned to tensors."""


class Submission:
    """Handles the events Submit and Allocate."""

    def __init__(self, core: Core, endings: Endings) -> None:
        self._core = core
        self._endings = endings
        self._run = Run()
        """The run of the current submit."""

    def submit(self, spec: Submit) -> None:
        """Accept a task, unless the ring of the scope has no free space."""
        self._run = open_run(self._core, spec.run, "submit")
        check_submit(self._core, spec)
        nbytes = sum(
            rounded(tensor.nbytes)
            for member in spec.members
            for tensor in member.tensors
            if is_allocated(tensor)
        )
        draft = self._draft(spec, nbytes)
        if draft is None:
            return
        task = self._take(spec, draft)
        task.attempts = spec.retries
        self._run.unfinished += 1
        if task.slab is not None:
            self._keep(task)
        self._core.slots.move(task, TaskEvent.SUBMIT)
        self._refer(task, Reference.SELF)
        for owner in sorted(draft.owners):
            self._hold(task, owner, Reference.OWNER)
        for producer, edge in sorted(draft.edges.items()):
            self._link(task, producer, edge)
        self._enter_regions(task, draft)
        self._endings.settle(task)

    def allocate(self, event: Allocate) -> None:
        """Allocate a buffer, recorded as a completed task, unless the scope's ring is full."""
        self._run = open_run(self._core, event.run, "alloc")
        if event.nbytes < 0:
            raise UsageError(f"{event.nbytes} bytes cannot be allocated", name="nbytes")
        draft = self._draft(None, rounded(event.nbytes))
        if draft is None:
            return
        self._place(draft, Tensor(0, event.nbytes, Tag.OUTPUT))
        task = self._take(None, draft)
        self._keep(task)
        self._core.slots.move(task, TaskEvent.ALLOCATE)
        region = Region(draft.allocated[0], draft.allocated[0] + event.nbytes)
        task.entries.append(self._core.regions.add(region, task.number, is_writer=True))

    def _draft(self, spec: Submit | None, nbytes: int) -> Draft | None:
        """Find edges, owners and free space. If space is missing, add ``Blocked``; return None."""
        core = self._core
        ring = core.rings[self._run.scopes.ring]
        draft = Draft(nbytes, 0)
        if spec is not None and spec.known is not None:
            self._take_known(spec.known, draft)
        elif spec is not None:
            self._find(spec, draft)
        if spec is not None:
            self._add_explicit(spec.after, draft)
        begin = ring.begin_of(nbytes)
        if begin is None:
            self._run.blocked = Blocked(ring.number, nbytes, ring.used, ring.size)
            core.instructions.append(self._run.blocked)
            return None
        draft.begin = begin
        if spec is not None:
            for member in spec.members:
                draft.addresses.append([self._place(draft, tensor) for tensor in member.tensors])
        return draft

    def _find(self, spec: Submit, draft: Draft) -> None:
        for tensor in _tracked(spec):
            region = region_of(tensor, tensor.address)
            owner = self._owner(region)
            if owner is not None:
                draft.owners.add(owner)
            if tensor.tag in (Tag.INPUT, Tag.INOUT):
                self._find_overlaps(draft, region, Edge.DATA, writers=True)
            if self._core.hazards is Hazards.FULL and tensor.tag in (Tag.OUTPUT, Tag.INOUT):
                self._find_overlaps(draft, region, Edge.ORDERS, writers=True)
                self._find_overlaps(draft, region, Edge.ORDERS, writers=False)

    def _take_known(self, known: Known, draft: Draft) -> None:
        slots = self._core.slots
        number = slots.next_number
        for distance in [*(distance for distance, _ in known.producers), *known.owners]:
            if not self._core.first_task <= number - distance < number:
                raise UsageError(
                    f"task {number} cannot wait for the task {distance} submits before it, which "
                    "does not belong to this run"
                )
        for distance, why in known.producers:
            edge = draft.edges.get(number - distance, Edge.ORDERS)
            draft.edges[number - distance] = edge | Edge(why)
        for distance in known.owners:
            owner = slots.tasks.get(number - distance)
            slab = None if owner is None else owner.slab
            if slab is None or not self._is_in_open_scope(slab):
                raise UsageError(
                    f"task {number} names a buffer of task {number - distance}, which has no "
                    "buffer in an open scope"
                )
            draft.owners.add(number - distance)

    def _add_explicit(self, producers: tuple[int, ...], draft: Draft) -> None:
        number = self._core.slots.next_number
        for producer in producers:
            if not self._core.first_task <= producer < number:
                raise UsageError(
                    f"task {producer} is not an earlier task of this run, so task {number} cannot "
                    "wait for it",
                    name="after",
                    value=producer,
                )
            edge = draft.edges.get(producer, Edge.ORDERS)
            draft.edges[producer] = edge | Edge.EXPLICIT | Edge.CERTAIN

    def _find_overlaps(self, draft: Draft, region: Region, edge: Edge, *, writers: bool) -> None:
        for entry in self._core.regions.overlapping(region, writers=writers):
            certain = Edge.CERTAIN if region.is_certain(entry.region) else Edge.ORDERS
            draft.edges[entry.task] = draft.edges.get(entry.task, Edge.ORDERS) | edge | certain

    def _owner(self, region: Region) -> int | None:
        """Return the task that owns the slab. Raises :class:`UsageError` if the slab was freed."""
        if region.is_key or region.child != NONE:
            return None
        for ring in self._core.rings:
            if ring.contains(region.begin, region.end):
                slab = ring.owner(region.begin, region.end)
                if slab is None or not self._is_in_open_scope(slab):
                    raise UsageError(
                        f"the {region.end - region.begin} bytes at {region.begin:#x} of heap ring "
                        f"{ring.number} belong to no task of an open scope; name a buffer only "
                        "before the scope that allocated it ends",
                        name="address",
                        value=region.begin,
                    )
                return slab.task
        return None

    def _is_in_open_scope(self, slab: Slab) -> bool:
        return self._core.slots.tasks[slab.task].references[Reference.SCOPE] > 0

    def _place(self, draft: Draft, tensor: Tensor) -> int:
        """Return the tensor's address; if it has none, assign an address in the reservation."""
        if not is_allocated(tensor):
            return tensor.address
        core = self._core
        if tensor.nbytes == 0:
            address = KEY_BIT | (core.key_count + draft.keys)
            draft.keys += 1
        else:
            ring = core.rings[self._run.scopes.ring]
            address = ring.configuration.address + draft.begin % ring.size + draft.placed
            draft.placed += rounded(tensor.nbytes)
        draft.allocated.append(address)
        return address

    def _take(self, spec: Submit | None, draft: Draft) -> Task:
        """Take the slot and the slab, and return the task; add the instruction ``Submitted``."""
        core = self._core
        task = core.slots.take(spec)
        if draft.nbytes:
            ring = core.rings[self._run.scopes.ring]
            task.slab = ring.reserve(task.number, draft.begin, draft.nbytes)
        core.key_count += draft.keys
        self._run.tasks += 1
        core.instructions.append(Submitted(task.number, tuple(draft.allocated)))
        return task

    def _keep(self, task: Task) -> None:
        """Keep a task, which has memory, until its scope ends."""
        self._run.scopes.enter(task.number)
        self._refer(task, Reference.SCOPE)

    def _link(self, task: Task, number: int, edge: Edge) -> None:
        """Add an edge: the task waits for the producer, is poisoned by it, or keeps it alive."""
        core = self._core
        root = core.roots.get(number)
        if root is not None and edge.poisons:
            task.poison = root if task.poison is None else min(task.poison, root)
        if not core.slots.is_live(number):
            return
        producer = core.slots.tasks[number]
        is_new = number not in task.producers
        task.producers[number] = task.producers.get(number, Edge.ORDERS) | edge
        if not edge & Edge.CERTAIN:
            core.conservative_edges += 1
        if edge & Edge.DATA:
            self._hold(task, number, Reference.CONSUMER)
        if is_new and core.slots.is_unfinished(number):
            task.unfinished.add(number)
            producer.consumers.append(task.number)

    def _hold(self, task: Task, number: int, reference: Reference) -> None:
        self._refer(self._core.slots.tasks[number], reference)
        task.holds.append((number, reference))

    @staticmethod
    def _refer(task: Task, reference: Reference) -> None:
        task.references[reference] += 1

    def _enter_regions(self, task: Task, draft: Draft) -> None:
        """Insert readers before writers, because the writes of a task supersede its own reads."""
        core = self._core
        if spec_of(task).known is not None:
            return
        regions = [
            (tensor, region_of(tensor, address))
            for member, addresses in zip(spec_of(task).members, draft.addresses, strict=True)
            for tensor, address in zip(member.tensors, addresses, strict=True)
        ]
        if core.hazards is Hazards.FULL:
            for tensor, region in regions:
                if tensor.tag is Tag.INPUT:
                    task.entries.append(core.regions.add(region, task.number, is_writer=False))
        for tensor, region in regions:
            if tensor.tag in WRITES:
                task.entries.append(core.regions.add(region, task.number, is_writer=True))


def _tracked(spec: Submit) -> Iterator[Tensor]:
    """Return, in order, the tensors that need a look-up of producers; allocated tensors do not."""
    for member in spec.members:
        for tensor in member.tensors:
            if tensor.tag is not Tag.NO_DEP and not is_allocated(tensor):
                yield tensor


# ---- checks of a submit: a failed check raises an error, and the engine is unchanged ----

_MORE = {
    Kind.NEXT_LEVEL: "make the Worker with device_ids, or add some with add_worker",
    Kind.SUB: "make the Worker with num_sub_workers",
}


def open_run(core: Core, number: int, what: str) -> Run:
    """Return a run to which tasks can be added; its last submit is no longer blocked."""
    run = core.runs[number] if number < len(core.runs) else None
    if run is not None:
        run.blocked = None
    if run is None or not run.is_open or run.is_ending:
        raise UsageError(f"{what} outside of a run; do it in the function or block of the run")
    return run


def check_submit(core: Core, spec: Submit) -> None:
    """Refuse a task that is malformed, or that no child can run."""
    children = core.children.of_kind(spec.kind)
    count = len(spec.members)
    if count < 1:
        raise UsageError(
            "a task without members; pass arguments for at least one member", name="members"
        )
    if not children:
        raise UsageError(
            f"a task for {spec.kind.name} children, but there are none; {_MORE[spec.kind]}"
        )
    if count > len(children):
        raise UsageError(
            f"a group of {count} members for {len(children)} {spec.kind.name} children; "
            "use a smaller group or add children",
            name="members",
            value=count,
            expected=len(children),
        )
    check_submit_sizes(spec)
    _check_pins(spec, {child.number for child in children})
    for member in spec.members:
        for tensor in member.tensors:
            if tensor.child != NONE:
                _check_child_memory(core, tensor)
            _check_tensor(tensor)


def check_submit_sizes(spec: Submit) -> None:
    """Refuse values that are too large for the structures of the native engine."""
    if spec.retries < 0 or spec.timeout_ms < 0:
        raise UsageError(f"retries {spec.retries}, timeout {spec.timeout_ms} ms: pass 0 or more")
    for member in spec.members:
        for tensor in member.tensors:
            if tensor.nbytes < 0 or not 0 <= tensor.address < (1 << 64) - tensor.nbytes:
                raise UsageError(f"{tensor.nbytes} bytes at {tensor.address:#x} are not a tensor")
            if tensor.box is not None and not fits(tensor.box):
                raise UsageError(
                    f"{tensor.box} is not a view of its buffer", name="box", value=tensor.box
                )


def _check_pins(spec: Submit, children: set[int]) -> None:
    if not spec.pins:
        return
    if len(spec.pins) != len(spec.members):
        raise UsageError(
            f"{len(spec.pins)} workers were passed for {len(spec.members)} members; "
            "pass one for each member",
            name="workers",
            value=spec.pins,
        )
    strangers = [pin for pin in spec.pins if pin not in children]
    if strangers:
        raise UsageError(
            f"worker {strangers[0]} is not a {spec.kind.name} child; use one of {sorted(children)}",
            name="workers",
            value=strangers[0],
        )
    if len(set(spec.pins)) < len(spec.pins):
        raise UsageError(
            f"workers {list(spec.pins)} contain a child twice; the members of a group need "
            "different children"
        )


def _check_child_memory(core: Core, tensor: Tensor) -> None:
    count = len(core.children.all)
    if not 0 <= tensor.child < count:
        raise UsageError(
            f"memory of child {tensor.child}, which does not exist; use 0 to {count - 1}",
            name="child",
            value=tensor.child,
        )
    if tensor.address == 0 and tensor.tag is Tag.OUTPUT:
        raise UsageError("an OUTPUT tensor of a child's memory without an address", name="address")
    end = tensor.address + tensor.nbytes
    if tensor.box is not None:
        end = tensor.box.base + tensor.box.element_bytes * prod(tensor.box.raw)
    if end > CHILD_MEMORY_END:
        raise UsageError(
            f"memory of child {tensor.child} that ends at {end:#x}; its addresses end at "
            f"{CHILD_MEMORY_END:#x}",
            name="address",
            value=tensor.address,
        )


def _check_tensor(tensor: Tensor) -> None:
    if tensor.address == 0 and tensor.tag not in (Tag.OUTPUT, Tag.NO_DEP):
        raise UsageError(
            f"an {tensor.tag.name} tensor without an address; only OUTPUT is allocated",
            name="address",
        )
    if tensor.address == 0 and tensor.box is not None:
        raise UsageError("a view of a buffer that is not allocated yet", name="box")
