"""The signatures have the published names, order and defaults."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pto_core
from pto_core import CallableHandle, In, Out, TaskHandle, Worker, task
from pto_core.worker.session import Session

STUB = ast.parse((Path(pto_core.__file__).parent / "_worker.pyi").read_text())

ORCHESTRATOR = {
    "submit_next_level": "(self, handle, args, config=None, *, worker=-1)",
    "submit_next_level_group": "(self, handle, args_list, config=None, *, workers=None)",
    "submit_sub": "(self, handle, args=None)",
    "submit_sub_group": "(self, handle, args_list)",
    "alloc": "(self, shape, dtype)",
    "scope": "(self)",
}
NATIVE = {
    "Orchestrator": {
        **ORCHESTRATOR,
        "submit_sub_many": "(self, handle, args, scalars=None)",
        "submit_next_level_many": "(self, handle, args, scalars=None, config=None)",
    },
    "TaskArgs": {"add_dep": "(self, *producers)"},
    "HandleBase": {"wait": "(self, timeout=None)"},
}
PYTHON = {
    Worker: {
        "__init__": "(self, level, platform=None, runtime=None, device_ids=(), num_sub_workers=0, "
        "heap_ring_size=None, *, child_mode='PROCESS')",
        "register": "(self, target)",
        "unregister": "(self, handle)",
        "add_worker": "(self, worker)",
        "init": "(self)",
        "run": "(self, graph, args=None, config=None)",
        "capture": "(self, graph, args=None, config=None)",
        "replay": "(self, graph, args=None)",
        "session": "(self, config=None, *, progress=False)",
        "shared_array": "(self, shape, dtype='float32')",
        "malloc": "(self, nbytes, worker=0)",
        "free": "(self, address, worker=0)",
        "copy_to": "(self, address, source, worker=0)",
        "copy_from": "(self, target, address, worker=0)",
        "close": "(self)",
    },
    Session: {
        "submit": "(self, task, /, *args, worker=None, hint=False, retries=None, timeout_s=None)",
        "submit_group": "(self, task, members, *, workers=None, hint=False)",
        "scope": "(self)",
    },
    TaskHandle: {"result": "(self, timeout=None)", "exception": "(self, timeout=None)"},
}
CASES = [
    (kind.__name__, kind, name, text) for kind, of in PYTHON.items() for name, text in of.items()
]
STUBBED = [(kind, name, text) for kind, of in NATIVE.items() for name, text in of.items()]
WITH_HINT = [name for name in ORCHESTRATOR if name.startswith("submit")]


def written(text: str) -> inspect.Signature:
    """Return the signature for the text of a parameter list."""
    names: dict[str, Callable[..., Any]] = {}
    exec(f"def function{text}: ...", names)  # the parameter lists above use these names
    return inspect.signature(names["function"])


def stubbed(kind: str, name: str) -> inspect.Signature:
    """Return the signature of a native method from its stub; another test checks the stub."""
    (body,) = (one.body for one in STUB.body if isinstance(one, ast.ClassDef) and one.name == kind)
    (method,) = (one for one in body if isinstance(one, ast.FunctionDef) and one.name == name)
    for argument in ast.walk(method.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return written(f"({ast.unparse(method.args)})")


def broken_promises(given: inspect.Signature, promised: inspect.Signature) -> list[str]:
    """List the differences that break calls written for ``promised``."""
    found = []
    by_place = [p for p in given.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    expected = [p for p in promised.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    by_place = [p for p in by_place if p.kind is not p.VAR_KEYWORD]
    if [_bare(p) for p in by_place] != [_bare(p) for p in expected]:
        found.append(f"its positional parameters are {[str(p) for p in by_place]}")
    for one in promised.parameters.values():
        other = given.parameters.get(one.name)
        if one.kind is one.KEYWORD_ONLY and (other is None or _bare(other) != _bare(one)):
            found.append(f"{one.name} is {other}")
    extra = [p for name, p in given.parameters.items() if name not in promised.parameters]
    found += [
        f"{p} is a required argument"
        for p in extra
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    return found


def _bare(one: inspect.Parameter) -> tuple[str, Any, Any]:
    return one.name, one.kind, one.default


@pytest.mark.parametrize(("kind", "of", "name", "text"), CASES)
def test_a_method_of_python_is_as_published(kind: str, of: Any, name: str, text: str) -> None:
    assert broken_promises(inspect.signature(getattr(of, name)), written(text)) == []


@pytest.mark.parametrize(("kind", "name", "text"), STUBBED)
def test_a_native_method_is_as_published(kind: str, name: str, text: str) -> None:
    assert broken_promises(stubbed(kind, name), written(text)) == []


@pytest.mark.parametrize("name", WITH_HINT)
def test_the_python_signature_of_a_native_submit_is_that_of_the_stub(name: str) -> None:
    shown = inspect.signature(getattr(pto_core.Orchestrator, name))
    bare = [
        p.replace(kind=p.POSITIONAL_OR_KEYWORD) if p.name == "self" else p
        for p in shown.parameters.values()
    ]
    assert [_bare(p) for p in bare] == [
        _bare(p) for p in stubbed("Orchestrator", name).parameters.values()
    ]


@pytest.mark.parametrize("name", WITH_HINT)
def test_a_hint_has_one_name_everywhere(name: str) -> None:
    hint = stubbed("Orchestrator", name).parameters["hint"]
    for submit in (Session.submit, Session.submit_group):
        assert _bare(inspect.signature(submit).parameters["hint"]) == _bare(hint)


def test_a_handle_of_a_callable_shows_what_is_published() -> None:
    worker = Worker(level=3, num_sub_workers=1)
    handle = worker.register(test_a_handle_of_a_callable_shows_what_is_published)
    assert isinstance(handle, CallableHandle)
    assert len(handle.digest) == 32
    assert handle.namespace.name == "LOCAL_PYTHON"
    assert handle.kind.name.startswith("PYTHON_")
    worker.close()


@pytest.mark.parametrize(
    ("given", "promised"),
    [
        ("(self, b, a)", "(self, a, b)"),
        ("(self, a, b=2)", "(self, a, b=1)"),
        ("(self, a, *, b)", "(self, a)"),
        ("(self, a, b=1)", "(self, a)"),
        ("(self, a, b=1)", "(self, a, *, b=1)"),
        ("(self, a)", "(self, a, *, b=1)"),
    ],
)
def test_a_change_is_found(given: str, promised: str) -> None:
    assert broken_promises(written(given), written(promised))


@task
def copy(x: In, out: Out) -> None:
    out[:] = x


def test_hints_are_accepted_for_a_task_and_for_a_group(make) -> None:
    worker = make(num_sub_workers=2)
    x, one, two = (worker.shared_array(4) for _ in range(3))
    x[:] = 5
    with worker.session() as s:
        s.submit(copy, x, one, worker=1, hint=True)
        s.submit_group(copy, [(x, one), (x, two)], workers=[1, 0], hint=True)
    assert (one == 5).all()
    assert (two == 5).all()
