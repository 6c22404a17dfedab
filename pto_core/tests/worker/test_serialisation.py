"""Functions that are sent to another interpreter as bytes return the same results there."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pto_core.errors import RightsError
from pto_core.worker.handles import Delivery, materialised, runnable
from pto_core.worker.serialisation import (
    deserialised,
    fingerprint,
    import_path,
    imported,
    serialised,
)

OFFSET = 5


def factorial(n: int) -> int:
    return 1 if n < 2 else n * factorial(n - 1)


def adder(amount: int) -> Callable[[int], int]:
    def add(value: int) -> int:
        return value + amount + OFFSET

    return add


def even_and_odd() -> tuple[Callable[[int], bool], Callable[[int], bool]]:
    def is_even(n: int) -> bool:
        return n == 0 or is_odd(n - 1)

    def is_odd(n: int) -> bool:
        return n != 0 and is_even(n - 1)

    return is_even, is_odd


def in_another_process(function: Callable[..., object], argument: int) -> str:
    program = (
        "import sys; from pto_core.worker.serialisation import deserialised; "
        "print(deserialised(sys.stdin.buffer.read())(int(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(argument)],
        input=serialised(function),
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        (lambda n: math.isqrt(n) + OFFSET, 49, "12"),
        (lambda n: int(np.arange(n).sum()), 5, "10"),
        (adder(30), 7, "42"),
        (even_and_odd()[0], 10, "True"),
        (lambda n, *, step=2: [n + step for step in range(step)], 4, "[4, 5]"),
    ],
    ids=["global names", "module", "closure", "each other", "defaults"],
)
def test_a_function_runs_in_another_process(
    function: Callable[..., object], argument: int, result: str
) -> None:
    assert in_another_process(function, argument) == result


def test_a_recursive_local_function_is_restored() -> None:
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    assert deserialised(serialised(count))(9) == 9


def test_different_functions_have_different_bytes() -> None:
    assert serialised(adder(1)) != serialised(adder(2))


def test_importable_objects_are_sent_by_name() -> None:
    assert deserialised(serialised(math.sqrt)) is math.sqrt
    assert import_path(factorial) == f"{__name__}:factorial"
    assert imported(f"{__name__}:factorial") is factorial
    assert import_path(adder(1)) is None


MODULES = {
    "company/__init__.py": "",
    "company/steps/__init__.py": (
        "import os, shutil\n"
        "from functools import partial\n"
        "from os import getpid\n"
        "from company import other\n"
        "from company.other import helper\n"
        "from company.steps import inner\n"
        "from company.steps.inner import deep\n"
        "from company.steps_of_others import other as alike\n"
        "from pto_core import kernel, task\n"
        "class Outer:\n"
        "    class Inner:\n"
        "        def method(self): return 2\n"
        "    getpid = getpid\n"
        "def run(): return 1\n"
        "remover = partial(shutil.rmtree)\n"
        "@task\n"
        "def typed(): pass\n"
        "@kernel(core='aiv')\n"
        "def core(): pass\n"
    ),
    "company/steps/inner.py": "def deep(): return 3\n",
    "company/other.py": "def helper(): return 4\n",
    "company/steps_of_others.py": "def other(): return 5\n",
}


@pytest.fixture
def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a package importable; ``company.steps`` is the permitted part of it."""
    for name, text in MODULES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [one for one in sys.modules if one.partition(".")[0] == "company"]:
        del sys.modules[name]


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize(
    "name", ["run", "Outer.Inner.method", "Outer", "Outer.Inner", "deep", "typed", "core"]
)
def test_objects_that_a_permitted_module_defines_can_be_imported(name: str) -> None:
    path = f"company.steps:{name}"
    found = imported(path, ["company.steps"])
    assert found is imported(path)
    runs = Delivery("import", path, None, ("company.steps",)).materialise()
    assert runs == runnable(found)
    version = Delivery("import", path, fingerprint(found), ("company.steps",))
    assert version.materialise() == runs


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize(
    "name",
    [
        "os.getpid",
        "shutil.rmtree",
        "inner.deep",
        "other.helper",
        "getpid",
        "helper",
        "alike",
        "remover",
        "Outer.getpid",
        "Outer.__subclasses__",
        "run.__class__",
        "run.__globals__.get",
        "run.__call__",
    ],
)
def test_objects_of_other_modules_cannot_be_imported_by_a_permitted_name(name: str) -> None:
    path, permitted = f"company.steps:{name}", ("company.steps",)
    for expected in (None, bytes(32)):
        with pytest.raises(RightsError, match="which this host does not permit to its client"):
            Delivery("import", path, expected, permitted).materialise()
    by_code = Delivery("serialised", serialised(factorial))
    deliveries = [Delivery("import", path, bytes(32), permitted), by_code]
    assert materialised(deliveries)(4) == 24  # the next delivery is used, because it is permitted


def test_objects_that_do_not_pickle_are_refused() -> None:
    stream = sys.stdout
    with pytest.raises(TypeError):
        serialised(lambda: stream.fileno())


SOURCE = """
import functools

SCALE = 2


class Shift:
    def by(self):
        return 1

    @staticmethod
    def twice():
        return 2


def helper(value):
    return SCALE * value


def decorated(function):
    @functools.wraps(function)
    def wrapper(value):
        return function(value)

    return wrapper


def plain(value, shift=0):
    return [helper(one) for one in (value, shift)]


@decorated
def wrapped(value):
    return helper(value)


@functools.lru_cache
def cached(value):
    return helper(value)


def with_class(value):
    return Shift().by() + value


async def other(value):
    return value


instance = Shift()
"""
EDITS = {
    "code": ("(value, shift)]", "(shift, value)]", {"plain"}),
    "default": ("shift=0", "shift=1", {"plain"}),
    "function that it uses": (
        "SCALE * value",
        "value * SCALE",
        {"plain", "wrapped", "cached"},
    ),
    "constant": ("SCALE = 2", "SCALE = 3", {"plain", "wrapped", "cached"}),
    "type of a constant": ("SCALE = 2", "SCALE = '2'", {"plain", "wrapped", "cached"}),
    "method": ("return 1", "return 3", {"with_class", "instance"}),
    "static method": ("return 2", "return 4", {"with_class", "instance"}),
    "decorator": ("return function(value)", "return 1 + function(value)", {"wrapped"}),
    "unused": ("return value", "return -value", {"other"}),
    "line": ("import functools\n", "# A comment.\nimport functools\n", set()),
}
NAMES = ("plain", "wrapped", "cached", "with_class", "other", "instance")


def module_of(source: str, folder: Path) -> dict[str, bytes]:
    """Return the fingerprints of a module's names, computed in another process."""
    (folder / "source.py").write_text(source)
    program = (
        "import source; from pto_core.worker.serialisation import fingerprint; "
        f"print(*(fingerprint(getattr(source, name)).hex() for name in {NAMES}))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", program],
        cwd=folder,
        capture_output=True,
        check=True,
        text=True,
    )
    return dict(zip(NAMES, map(bytes.fromhex, done.stdout.split()), strict=True))


def test_a_fingerprint_covers_the_module_members_that_a_function_uses(tmp_path: Path) -> None:
    before = module_of(SOURCE, tmp_path)
    assert module_of(SOURCE, tmp_path) == before
    for old, new, changed in EDITS.values():
        assert SOURCE.count(old) == 1
        after = module_of(SOURCE.replace(old, new), tmp_path)
        assert {name for name in NAMES if after[name] != before[name]} == changed, new
