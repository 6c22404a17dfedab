"""Invalid inputs of all kinds through the Python API, in one process; no resources are left."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pto_core
from pto_core import ChipCallable, CoreCallable, Device, KernelSource, kernel
from pto_core.errors import (
    AddressError,
    CompileError,
    ConfigError,
    CycleError,
    DeviceMemoryError,
    LoadError,
    OrchestrationError,
    RunTimeoutError,
    TaskFailedError,
    TaskTimeoutError,
    UnknownPluginError,
    UnpublishedError,
    UsageError,
)
from pto_core.kernels import OrchestrationSource

VECTOR = Path(__file__).parents[2] / "examples" / "01_vector" / "kernels"
NAMES = ("add", "add_scalar", "multiply")
PATIENCE_S = 60
Snapshot = dict[str, list[str]]


class Surprise(Exception):
    pass


@kernel(core="aiv")
def nothing(*args):
    pass


@kernel(core="aiv")
def fail(*args):
    raise Surprise("in the kernel")


@kernel(core="aiv")
def slow(*args):
    threading.Event().wait(timeout=0.3)


class Place:
    """The environment of one invalid input: a runtime, a cache, and a folder for sources."""

    def __init__(self, runtime: str, cache: Path, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self.settings = {"cache_dir": cache, "sim.check": True, "sim.memory_bytes": 2**26}

    def open(self, **settings: Any) -> Device:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        return pto_core.open_device(
            "a2a3sim", runtime=self.runtime, settings={**self.settings, **named}
        )

    def run(self, chip: Any, *args: Any, timeout_s: float | None = None, **settings: Any) -> None:
        with self.open(**settings) as device:
            device.run(chip, *args, timeout_s=timeout_s)

    def source(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def cpp_kernel(self, text: str) -> Callable[[Any], None]:
        """Return an orchestration that runs the C++ kernel with this source on one array."""
        made = CoreCallable(KernelSource(self.source("bad_kernel.cpp", text)), "aiv")
        return lambda rt, *args: rt.publish(rt.add_task(made, args))

    def vector(self) -> None:
        """Run the vector example and check its result."""
        children = {
            number: CoreCallable(KernelSource(VECTOR / "aiv" / f"{name}.cpp"), "aiv")
            for number, name in enumerate(NAMES)
        }
        source = VECTOR / "orchestration" / f"{self.runtime}.cpp"
        chip = ChipCallable(OrchestrationSource(source, "build_vector_graph"), children)
        a, b = np.full((128, 128), 2, "float32"), np.full((128, 128), 3, "float32")
        f = np.zeros((128, 128), "float32")
        with self.open() as device:
            assert device.run(chip, a, b, f, f.size).tasks == 4
        assert (f == 42).all()


def publish_all(rt: Any, tasks: list[int]) -> None:
    for task in tasks:
        rt.publish(task)


def cycle(rt: Any) -> None:
    tasks = [rt.add_task(nothing, ()) for _ in range(3)]
    for earlier, later in itertools.pairwise([*tasks, tasks[0]]):
        rt.add_successor(earlier, later)
    publish_all(rt, tasks)


def chain_of_slow(rt: Any) -> None:
    tasks = [rt.add_task(slow, ()) for _ in range(20)]
    for earlier, later in itertools.pairwise(tasks):
        rt.add_successor(earlier, later)
    publish_all(rt, tasks)


def raise_surprise(rt: Any) -> None:
    rt.publish(rt.add_task(nothing, ()))
    raise Surprise("in the orchestration")


def interrupt(rt: Any) -> None:
    raise KeyboardInterrupt


def one(of: CoreCallable) -> Callable[..., None]:
    return lambda rt, *args: rt.publish(rt.add_task(of, args))


ENTRY = 'extern "C" void kernel_entry(long* args) '
GRAPHS = {
    "host_build_graph": 'extern "C" int graph(Runtime*, uint64_t*, int)',
    "aicpu_build_graph": 'extern "C" int graph(Runtime*)',
}


def returns_17(place: Place) -> None:
    text = f'#include "runtime.h"\n{GRAPHS[place.runtime]} {{ return 17; }}\n'
    source = OrchestrationSource(place.source("bad_graph.cpp", text), "graph")
    place.run(ChipCallable(source))


def exhaust_memory(place: Place) -> None:
    with place.open() as device:
        kept = [device.empty(2**20) for _ in range(15)]
        device.empty(2**23)
        del kept


def run_missing_case(place: Place) -> None:
    pto_core.run_case(place.folder / "no-such-case")


def run_case_without_kernels(place: Place) -> None:
    (place.folder / "kernels").mkdir()
    place.source("golden.py", "def generate_inputs(params): return []\n")
    place.source("kernels/kernel_config.py", "KERNELS = []\n")
    pto_core.run_case(place.folder, settings=place.settings)


Mistake = Callable[[Place], None]
MISTAKES: dict[str, tuple[type[BaseException], Mistake]] = {
    "data type": (UsageError, lambda p: p.run(one(nothing), np.array([None, "a"]))),
    "memory order": (UsageError, lambda p: p.run(one(nothing), np.zeros((4, 4)).T)),
    "argument count": (UsageError, lambda p: p.run(lambda rt, a: None)),
    "kernel raises": (TaskFailedError, lambda p: p.run(one(fail), np.zeros(3))),
    "orchestration raises": (Surprise, lambda p: p.run(raise_surprise)),
    "orchestration is interrupted": (KeyboardInterrupt, lambda p: p.run(interrupt)),
    "orchestration returns 17": (OrchestrationError, returns_17),
    "cycle": (CycleError, lambda p: p.run(cycle)),
    "func_id": (UsageError, lambda p: p.run(lambda rt: rt.add_task(77, ()))),
    "edge": (UsageError, lambda p: p.run(lambda rt: rt.add_successor(0, 1))),
    "kernel does not compile": (
        CompileError,
        lambda p: p.run(p.cpp_kernel("this is not C++;\n"), np.zeros(3)),
    ),
    "kernel without entry": (
        CompileError,
        lambda p: p.run(p.cpp_kernel("int nothing;\n"), np.zeros(3)),
    ),
    "kernel uses an undefined symbol": (
        LoadError,
        lambda p: p.run(p.cpp_kernel(f"void absent();\n{ENTRY}{{ absent(); }}\n"), np.zeros(3)),
    ),
    "write past the end": (
        AddressError,
        lambda p: p.run(
            p.cpp_kernel(f"{ENTRY}{{ reinterpret_cast<char*>(args[0])[24] = 1; }}\n"), np.zeros(3)
        ),
    ),
    "slow kernel": (TaskTimeoutError, lambda p: p.run(one(slow), task_timeout_s=0.05)),
    "slow run": (RunTimeoutError, lambda p: p.run(chain_of_slow, timeout_s=0.4)),
    "memory": (DeviceMemoryError, exhaust_memory),
    "plugin": (UnknownPluginError, lambda p: pto_core.open_device("a2a3simm").close()),
    "setting": (ConfigError, lambda p: p.open(sim__sed=1).close()),
    "case folder": (UsageError, run_missing_case),
    "case without kernels": (UsageError, run_case_without_kernels),
}
# The mistakes that reach the graph or its tasks, so both runtimes meet them. The others are found
# earlier, by the same code for both.
IN_THE_GRAPH = {
    *("kernel raises", "orchestration raises", "orchestration returns 17", "cycle", "func_id"),
    *("edge", "write past the end", "slow kernel", "slow run"),
}
PLACES = [
    (runtime, mistake)
    for runtime in GRAPHS
    for mistake in MISTAKES
    if runtime == "host_build_graph" or mistake in IN_THE_GRAPH
]


def snapshot(cache: Path) -> Snapshot:
    """List the open files and threads of the process, shared memory, and the files of the cache."""
    gc.collect()
    tasks = Path("/proc/self/task")
    children = []
    for task in tasks.iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            children += (task / "children").read_text().split()
    descriptors = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor that listed the folder is closed now
            descriptors.append(f"{entry.name} {entry.readlink()}")
    return {
        "descriptors": sorted(d for d in descriptors if not d.endswith(f"/{os.getpid()}/fd")),
        "processes": sorted(children),
        "threads": sorted(task.name for task in tasks.iterdir()),
        "shared memory": sorted(os.listdir("/dev/shm")),
        "cache": sorted(str(path) for path in cache.rglob("*")),
    }


def difference(before: Snapshot, cache: Path) -> dict[str, list[str]]:
    """Return the resources that did not exist before; wait a moment for those being released."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        now = snapshot(cache)
        more = {key: sorted(set(now[key]) - set(before[key])) for key in now}
        found = {key: values for key, values in more.items() if values}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


@pytest.fixture(params=GRAPHS)
def place(request, shared_cache: Path, tmp_path: Path) -> Place:
    return Place(request.param, shared_cache, tmp_path)


@pytest.fixture
def nothing_left(place: Place, shared_cache: Path) -> Iterator[Callable[[], None]]:
    """Require that the test leaves nothing, except artefacts of sources that did compile.

    Then the vector example runs in this process, and must leave nothing either.
    """
    place.vector()
    before = snapshot(shared_cache)
    yield
    built = [
        str(path) for kind in ("artefacts", "manifests") for path in (shared_cache / kind).iterdir()
    ]
    left = difference({**before, "cache": [*before["cache"], *built]}, shared_cache)
    assert left == {}
    place.vector()
    before["cache"] += built
    assert difference(before, shared_cache) == {}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(("place", "mistake"), PLACES, indirect=["place"])
def test_mistake(place: Place, mistake: str) -> None:
    expected, make = MISTAKES[mistake]
    with pytest.raises(expected):
        make(place)


@pytest.mark.usefixtures("nothing_left")
def test_tasks_that_are_not_published(shared_cache: Path, tmp_path: Path) -> None:
    place = Place("aicpu_build_graph", shared_cache, tmp_path)
    with pytest.raises(UnpublishedError):
        place.run(lambda rt: rt.add_task(nothing, ()))


@pytest.mark.usefixtures("nothing_left")
def test_many_mistakes_on_one_device(place: Place) -> None:
    with place.open() as device:
        for _ in range(3):
            for graph in (cycle, raise_surprise, one(fail), lambda rt: rt.add_task(77, ())):
                with pytest.raises((CycleError, Surprise, TaskFailedError, UsageError)):
                    device.run(graph)
        assert device.run(one(nothing), np.zeros(3)).tasks == 1


@pytest.mark.usefixtures("nothing_left")
def test_mistakes_of_other_libraries_are_explained(place: Place) -> None:
    def graph(rt: Any, x: Any, out: Any) -> None:
        raise AssertionError

    x = np.zeros(3, "float32")
    with place.open() as device:
        with pytest.raises(UsageError, match=r"no option 'out'; .* device\.run\(graph, x, out\)"):
            device.run(graph, x, out=x)
        with pytest.raises(UsageError, match="no option 'timeout'; did you mean 'timeout_s'"):
            device.run(graph, x, x, timeout=3)
        with pytest.raises(AttributeError, match="no attribute 'submit'; write def graph"):
            device.submit(nothing, x)
        with pytest.raises(AttributeError, match=r"no attribute 'something'$"):
            device.something  # noqa: B018


def test_a_failed_compilation_leaves_the_cache_unchanged(place: Place, shared_cache: Path) -> None:
    place.vector()
    before = snapshot(shared_cache)
    with pytest.raises(CompileError):
        MISTAKES["kernel does not compile"][1](place)
    assert difference(before, shared_cache) == {}
