"""Checks of a submit. A check that fails raises an error, and the engine is unchanged."""

from __future__ import annotations

from math import prod

from pto_core.errors import UsageError
from pto_devkit.abi import Tag
from pto_devkit.engine.events import CHILD_MEMORY_END, NONE, Kind, Submit, Tensor
from pto_devkit.engine.reference.core import Core
from pto_devkit.engine.reference.regions import fits

_MORE = {
    Kind.NEXT_LEVEL: "make the Worker with device_ids, or add some with add_worker",
    Kind.SUB: "make the Worker with num_sub_workers",
}


def check_open(core: Core, what: str) -> None:
    """Raise if no run is open, because the event is only valid inside a run."""
    if not core.is_running or core.is_ending:
        raise UsageError(f"{what} outside of a run; do it in the function or block of the run")


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
