"""Devices whose runtimes accept tensors: a test runtime, and the real one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import pto_core
from pto_core import Device

INCLUDE = Path(str(files(pto_core) / "include"))
OPTIONS = """(
            Option("in_order.slots", 0, parse.integer(0), "most tasks alive", native="slots"),
            Option("in_order.stuck", 0, parse.integer(0), "1: a deadlock", native="stuck"),
        )"""


@pytest.fixture(scope="session")
def in_order_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("in_order") / "libpto_in_order.so"
    source = Path(__file__).with_name("runtime.cpp")
    subprocess.run(
        ["c++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{INCLUDE}", source, "-o", library],
        check=True,
    )
    return library


@pytest.fixture
def open_in_order(
    site, in_order_library: Path, shared_cache: Path
) -> Iterator[Callable[..., Device]]:
    """Return a function that opens a device with settings of the runtime or of the simulator."""
    site.runtime(
        "in_order",
        ('(Option("in_order.level", 3, parse.integer(0, 9), "a level", native="level"),)', OPTIONS),
        library=in_order_library,
    )
    with ExitStack() as stack:

        def open_one(**settings: Any) -> Device:
            keys = {key.replace("__", "."): value for key, value in settings.items()}
            return stack.enter_context(
                pto_core.open_device(
                    "a2a3sim",
                    runtime="in_order",
                    settings={"sim.check": 1, "cache_dir": shared_cache, **keys},
                )
            )

        yield open_one


@pytest.fixture(params=("in_order", "tensormap_and_ringbuffer"))
def tensors(
    request: pytest.FixtureRequest, open_in_order: Callable[..., Device], shared_cache: Path
) -> Iterator[Device]:
    """Open a device with each runtime that has tensors: the test runtime, and the real one."""
    if request.param == "in_order":
        yield open_in_order()
        return
    settings = {"sim.check": 1, "cache_dir": shared_cache}
    with pto_core.open_device("a2a3sim", runtime=request.param, settings=settings) as device:
        yield device


@pytest.fixture(params=("in_order", "tensormap_and_ringbuffer"))
def open_narrow(
    request: pytest.FixtureRequest, open_in_order: Callable[..., Device], shared_cache: Path
) -> Iterator[Callable[..., Device]]:
    """Return a function that opens a device with space for two or three tasks."""
    with ExitStack() as stack:

        def open_one(**settings: Any) -> Device:
            if request.param == "in_order":
                return open_in_order(in_order__slots=2, **settings)
            keys = {"pto2.task_window": 4, "cache_dir": shared_cache, **settings}
            return stack.enter_context(
                pto_core.open_device("a2a3sim", runtime=request.param, settings=keys)
            )

        yield open_one


@pytest.fixture
def in_order(open_in_order: Callable[..., Device]) -> Device:
    return open_in_order()
