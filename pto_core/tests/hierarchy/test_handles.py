"""What callables are known by, and who may use a handle."""

from __future__ import annotations

import hashlib
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pto_core import ChipCallable, In, Out, kernel
from pto_core._hierarchy import CallableKind, CallableSpace
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.hierarchy.handles import identity
from pto_core.hierarchy.registry import Registry

PATH = f"{__name__}:top_level"


def top_level(args: Any) -> None: ...


@kernel(core="aiv")
def double(x: In, out: Out) -> None:
    out[:] = 2 * x


def graph(rt: Any, x: In, out: Out) -> None:
    rt.submit(double, x, out)


def closure(value: int) -> Callable[[], int]:
    return lambda: value


def hashed(*parts: str) -> bytes:
    """The digest, written down once more."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part.encode()).to_bytes(8, "little") + part.encode())
    return found.digest()


@pytest.fixture
def main_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def define(module: types.ModuleType, source: str) -> Any:
    exec(source, module.__dict__)
    return module.__dict__["work"]


def test_an_import_path_is_hashed_with_its_kind_and_nothing_else() -> None:
    expected = hashed("PYTHON_IMPORT", PATH)
    for target in (top_level, PATH):
        for inherits in (True, False):
            known = identity(target, serialise=False, inherits=inherits)
            assert (known.digest, known.kind) == (expected, CallableKind.PYTHON_IMPORT)
            assert known.space == CallableSpace.LOCAL_PYTHON
            assert known.delivery is not None
            assert known.delivery.materialise() is top_level


def test_a_serialised_function_is_hashed_by_its_bytes() -> None:
    first, same, other = (
        identity(closure(value), serialise=True, inherits=False) for value in (1, 1, 2)
    )
    assert first.digest == same.digest != other.digest
    assert first.kind == CallableKind.PYTHON_SERIALISED
    assert first.delivery is not None
    assert first.delivery.materialise()() == 1


def test_two_inherited_closures_of_one_code_differ() -> None:
    work = closure(1)
    digests = {identity(work, serialise=False, inherits=True).digest for _ in range(2)}
    digests.add(identity(closure(1), serialise=False, inherits=True).digest)
    assert len(digests) == 3


def test_a_chip_is_hashed_by_all_its_content() -> None:
    chip = ChipCallable(graph, {0: double})
    known = identity(chip, serialise=False, inherits=False)
    assert (known.digest, known.kind) == (chip.digest, CallableKind.CHIP)
    assert known.space == CallableSpace.LOCAL_CHIP
    assert known.delivery is not None
    again = known.delivery.materialise()
    assert again.digest == chip.digest
    assert again.children[0].function is double.function


def test_a_closure_cannot_follow_children_that_run() -> None:
    with pytest.raises(UsageError, match=r"closure.*lambda.* before init\(\).*serialise=True"):
        identity(closure(1), serialise=False, inherits=False)
    with pytest.raises(UsageError, match=r"register the ChipCallable before init\(\)"):
        identity(ChipCallable(lambda rt: None), serialise=False, inherits=False)


def test_what_cannot_be_serialised_is_named() -> None:
    stream = sys.stdout
    with pytest.raises(UsageError, match=r"<lambda> cannot be serialised: .*before init\(\)"):
        identity(lambda: stream, serialise=True, inherits=True)
    with pytest.raises(UsageError, match="<lambda> cannot be serialised"):
        identity(ChipCallable(lambda rt: stream), serialise=True, inherits=False)


def test_a_function_of_the_program_must_be_the_one_that_children_have(
    main_module: types.ModuleType,
) -> None:
    work = define(main_module, "def work(): return 1")
    delivery = identity(work, serialise=False, inherits=False).delivery
    assert delivery is not None
    assert delivery.materialise() is work
    define(main_module, "def work(): return 2")
    with pytest.raises(UsageError, match=r"__main__:work is not the same in the child"):
        delivery.materialise()


@pytest.mark.parametrize("target", [7, double, "not a path", "module", "os:no_such_name", "os:sep"])
def test_what_cannot_run_is_refused(target: object) -> None:
    with pytest.raises(UsageError):
        identity(target, serialise=False, inherits=True)


def test_a_handle_is_of_one_worker_and_dies() -> None:
    here, there = Registry(), Registry()
    registration = here.make(top_level, serialise=False, inherits=True)
    handle = registration.handle
    with pytest.raises(UsageError, match="'top_level' is dead"):
        here.target_of(handle)
    here.add(registration)
    assert here.target_of(handle) is top_level
    assert (handle.name, handle.worker) == ("top_level", here.live.worker)
    assert here.table(CallableSpace.LOCAL_PYTHON) == {handle.digest: top_level}
    assert here.table(CallableSpace.LOCAL_CHIP) == {}
    with pytest.raises(UsageError, match="is of another Worker"):
        there.target_of(handle)
    here.remove(handle)
    with pytest.raises(UsageError, match="is dead: it was unregistered"):
        here.target_of(handle)
    with pytest.raises(UsageError, match="handle is 'top_level' of type str"):
        here.target_of("top_level")
    here.close()
    with pytest.raises(WorkerClosedError, match="closed"):
        here.target_of(handle)


def test_an_object_is_found_by_one_of_its_live_handles() -> None:
    registry = Registry()
    first, second = (registry.make(top_level, serialise=False, inherits=True) for _ in range(2))
    registry.add(first)
    registry.add(second)
    registry.remove(second.handle)
    assert registry.handle_of(top_level) == first.handle
    registry.remove(first.handle)
    assert registry.handle_of(top_level) is None


def test_a_pickled_registry_has_the_same_registrations() -> None:
    registry = Registry()
    made = registry.make(PATH, serialise=False, inherits=False)
    registry.add(made)
    other = pickle.loads(pickle.dumps(registry))
    assert other.target_of(made.handle) is top_level
    assert other.handle_of(top_level) == made.handle


def test_a_digest_lives_as_long_as_one_of_its_handles() -> None:
    registry = Registry()
    first, second = (registry.make(PATH, serialise=False, inherits=True) for _ in range(2))
    registry.add(first)
    registry.add(second)
    registry.remove(first.handle)
    assert registry.has(second.handle.digest)
    registry.remove(second.handle)
    assert not registry.has(second.handle.digest)


def test_children_that_are_spawned_need_a_delivery() -> None:
    registry = Registry()
    registry.add(registry.make(top_level, serialise=False, inherits=True))
    assert len(registry.deliveries(CallableSpace.LOCAL_PYTHON)) == 1
    registry.add(registry.make(closure(1), serialise=False, inherits=True))
    with pytest.raises(UsageError, match="cannot reach children that are spawned"):
        registry.deliveries(CallableSpace.LOCAL_PYTHON)
