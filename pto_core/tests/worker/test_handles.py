"""The identity of callables, and the Workers that accept a handle."""

from __future__ import annotations

import hashlib
import pickle
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pto_core import ChipCallable, In, Out, kernel
from pto_core._worker import CallableKind, CallableSpace
from pto_core.errors import UsageError, WorkerClosedError
from pto_core.kernels import CoreCallable, KernelSource, OrchestrationSource
from pto_core.worker.handles import by_code, identity, materialised
from pto_core.worker.registry import Registry
from pto_core.worker.serialisation import NotImportableError, fingerprint

PATH = f"{__name__}:top_level"


def top_level(args: Any) -> None: ...


@kernel(core="aiv")
def double(x: In, out: Out) -> None:
    out[:] = 2 * x


def graph(rt: Any, x: In, out: Out) -> None:
    rt.submit(double, x, out)


def closure(value: int) -> Callable[[], int]:
    return lambda: value


def hashed(*parts: str | bytes) -> bytes:
    """Compute the expected digest, independently of the code under test."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        found.update(len(content).to_bytes(8, "little") + content)
    return found.digest()


@pytest.fixture
def main_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def define(module: types.ModuleType, source: str) -> Any:
    exec(source, module.__dict__)
    return module.__dict__["work"]


def test_an_import_path_is_hashed_with_its_kind_and_its_code() -> None:
    expected = hashed("PYTHON_IMPORT", PATH, fingerprint(top_level))
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
    expected = hashed(chip.digest, fingerprint(graph), fingerprint(double.function))
    assert (known.digest, known.kind) == (expected, CallableKind.CHIP)
    native = ChipCallable(OrchestrationSource(__file__))
    assert identity(native, serialise=False, inherits=False).digest == native.digest
    assert known.space == CallableSpace.LOCAL_CHIP
    assert known.delivery is not None
    again = known.delivery.materialise()
    assert again.digest == chip.digest
    assert again.children[0].function is double.function


def test_sources_travel_by_path_with_their_options() -> None:
    kernel_source = KernelSource(__file__, ["-DN=1"])
    source = OrchestrationSource(__file__, "build", ["-DN=2"])
    chip = ChipCallable(source, {0: CoreCallable(kernel_source, "aiv")})
    again = by_code(chip).materialise()
    assert again.orchestration == source
    assert again.children[0].binary == kernel_source


def test_a_function_without_an_import_path_travels_by_code() -> None:
    known = identity(closure(3), serialise=False, inherits=False)
    assert known.kind == CallableKind.PYTHON_SERIALISED
    assert known.delivery is not None
    assert known.delivery.materialise()() == 3
    chip = identity(ChipCallable(lambda rt: 4), serialise=False, inherits=False)
    assert chip.delivery is not None
    assert chip.delivery.materialise().function(None) == 4


def test_an_object_that_cannot_be_serialised_is_named() -> None:
    stream = sys.stdout
    with pytest.raises(UsageError, match=r"<lambda> cannot be serialised: .*before init\(\)"):
        identity(lambda: stream, serialise=True, inherits=True)
    with pytest.raises(UsageError, match="<lambda> cannot be serialised"):
        identity(ChipCallable(lambda rt: stream), serialise=True, inherits=False)


def test_children_refuse_another_version_of_a_function(
    main_module: types.ModuleType,
) -> None:
    work = define(main_module, "def work(): return 1")
    delivery = identity(work, serialise=False, inherits=False).delivery
    assert delivery is not None
    assert delivery.materialise() is work
    define(main_module, "def work(): return 2")
    with pytest.raises(NotImportableError, match="__main__:work differs here from the code"):
        delivery.materialise()
    assert materialised([delivery, by_code(work)])() == 1


def test_the_name_of_the_main_module_does_not_matter(
    main_module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = identity(define(main_module, "def work(): return 1"), serialise=False, inherits=False)
    monkeypatch.setitem(sys.modules, "__mp_main__", main_module)
    main_module.__name__ = "__mp_main__"
    same = identity(define(main_module, "def work(): return 1"), serialise=False, inherits=False)
    assert same.digest == known.digest
    assert by_code(main_module.__dict__["work"]).materialise()() == 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (7, "7 cannot be registered"),
        (double, "cannot be registered"),
        ("not a path", "'not a path' is not an absolute import path"),
        ("module", "'module' is not an absolute import path"),
        (".pkg:fn", "'.pkg:fn' is not an absolute import path; write it as 'package.module:func"),
        ("..pkg.module:fn", "is not an absolute import path"),
        (":fn", "is not an absolute import path"),
        ("pkg:", "is not an absolute import path"),
        ("no_such_module:fn", "cannot be imported: ModuleNotFoundError"),
        ("os:no_such_name", "cannot be imported: AttributeError"),
        ("os:sep", "which cannot be called"),
    ],
)
@pytest.mark.parametrize("serialise", [False, True])
def test_objects_that_cannot_run_are_refused(target: object, message: str, serialise: bool) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        identity(target, serialise=serialise, inherits=True)


def test_a_module_that_raises_at_its_import_is_refused_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_at_import.py").write_text("raise RuntimeError('no device')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="cannot be imported: RuntimeError: no device"):
        identity("raises_at_import:fn", serialise=False, inherits=True)


def test_a_handle_is_valid_for_one_worker_until_its_end() -> None:
    here, there = Registry(), Registry()
    registration = here.make(top_level, serialise=False, inherits=True)
    handle = registration.handle
    with pytest.raises(UsageError, match="'top_level' is dead"):
        here.target_of(handle)
    here.add(registration)
    here.publish(registration)
    assert here.target_of(handle) is top_level
    assert (handle.name, handle.worker) == ("top_level", here.live.worker)
    assert here.inherited(CallableSpace.LOCAL_PYTHON) == {handle.digest: top_level}
    assert here.inherited(CallableSpace.LOCAL_CHIP) == {}
    with pytest.raises(UsageError, match="belongs to another Worker"):
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
    registry.publish(first)
    registry.add(second)
    registry.publish(second)
    registry.remove(second.handle)
    assert registry.current(top_level) is first
    registry.remove(first.handle)
    assert registry.current(top_level) is None


def test_a_pickled_registry_has_the_same_registrations() -> None:
    registry = Registry()
    made = registry.make(PATH, serialise=False, inherits=False)
    registry.add(made)
    registry.publish(made)
    other = pickle.loads(pickle.dumps(registry))
    assert other.target_of(made.handle) is top_level
    found = other.current(top_level)
    assert found is not None
    assert found.handle == made.handle


def test_a_digest_lives_as_long_as_one_of_its_handles() -> None:
    registry = Registry()
    first, second = (registry.make(PATH, serialise=False, inherits=True) for _ in range(2))
    registry.add(first)
    registry.publish(first)
    registry.add(second)
    registry.publish(second)
    registry.remove(first.handle)
    assert registry.has(second.handle.digest)
    registry.remove(second.handle)
    assert not registry.has(second.handle.digest)


def test_spawned_children_import_a_function_or_get_its_code() -> None:
    registry = Registry()
    for target in (top_level, closure(1), ChipCallable(graph, {0: double})):
        registry.add(registry.make(target, serialise=False, inherits=False))
    ways = registry.deliveries(CallableSpace.LOCAL_PYTHON).values()
    assert [[one.way for one in found] for found in ways] == [
        ["import", "serialised"],
        ["serialised"],
    ]
    (chip,) = registry.deliveries(CallableSpace.LOCAL_CHIP).values()
    assert [one.materialise().children[0].name for one in chip] == ["double", "double"]


def test_two_functions_of_one_path_and_code_are_two_callables() -> None:
    """The functions differ only in a default that no fingerprint covers.

    Children cannot import the older function.
    """
    registry = Registry()
    module = types.ModuleType("made_twice")
    for inherits in (True, False):
        handles = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setitem(sys.modules, "made_twice", module)
            for value in ([1], [2]):
                module.__dict__["value"] = value
                work = define(module, "def work(found=value): return found")
                made = registry.make(work, serialise=False, inherits=inherits)
                registry.add(made)
                registry.publish(made)
                handles.append(made.handle)
                assert registry.current(work) is made
        assert handles[0].digest != handles[1].digest
