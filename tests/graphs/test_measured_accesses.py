"""Measured accesses: the exact bytes of each task, the races by these bytes, planted defects."""

from __future__ import annotations

import random
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import CoreCallable, Device, In, InOut, KernelSource, NoDep, Out, kernel, open_device
from pto_core.errors import RaceError, TaskFailedError, UnsupportedError
from pto_insight.graphs import AccessLog, Mismatch, TaskGraph
from pto_insight.graphs.log import READ, WRITE

# Invariant of this file: The bytes that a kernel built for measurement reports are those that it
# reads before it writes them, and those that it writes. Two tasks race exactly if they share such
# bytes, one of them writes, and no chain of edges leads from one to the other.

KERNELS = Path(__file__).with_name("measured_kernels")
BYTES = 64
PROGRAMS = 20
Ranges = tuple[tuple[int, int, int], ...]


def touch(*options: str) -> CoreCallable:
    return CoreCallable(KernelSource(KERNELS / "touch.cpp", options), "aiv", name="touch")


def measuring(runtime: str, number: int) -> Device:
    mode = {"measure": True, "sim.mode": "deterministic"}
    return open_device("a2a3sim", runtime=runtime, device=number, settings=mode)


@pytest.fixture(scope="module")
def build_graph() -> Iterator[Device]:
    with measuring("host_build_graph", 0) as device:
        yield device


@pytest.fixture(scope="module")
def tensors() -> Iterator[Device]:
    with measuring("pto2", 1) as device:
        yield device


def words(ranges: Ranges) -> list[int]:
    return [word for one in ranges for word in one]


def random_ranges(numbers: random.Random) -> Ranges:
    def one() -> tuple[int, int, int]:
        begin = numbers.randrange(BYTES)
        return begin, min(BYTES, begin + numbers.randint(1, 9)), numbers.randint(0, 1)

    return one(), one()


def racing_bytes(first: Ranges, second: Ranges) -> int:
    """Return the number of bytes that both touch and that at least one of them writes."""

    def touched(ranges: Ranges, wanted: tuple[int, ...]) -> set[int]:
        return {at for low, high, write in ranges if write in wanted for at in range(low, high)}

    shared = touched(first, (0, 1)) & touched(second, (1,))
    return len(shared | touched(first, (1,)) & touched(second, (0, 1)))


def expected(graph: TaskGraph, tasks: list[Ranges]) -> dict[tuple[int, int], int]:
    found = {}
    for first, second in combinations(range(len(tasks)), 2):
        shared = racing_bytes(tasks[first], tasks[second])
        if shared and not graph.is_before(first, second):
            found[first, second] = shared
    return found


def races(graph: TaskGraph) -> dict[tuple[int, int], int]:
    return {
        (race.first.index, race.second.index): race.shared_bytes for race in graph.check().races
    }


def stated(tasks: list[Ranges], edges: list[tuple[int, int]]) -> Callable[..., None]:
    def program(rt: Any, data: InOut) -> None:
        ids = [rt.add_task(touch(), (data, *words(ranges))) for ranges in tasks]
        for first, second in edges:
            rt.add_successor(ids[first], ids[second])

    return program


def derived(tasks: list[Ranges], tags: list[Any]) -> Callable[..., None]:
    def program(rt: Any, data: InOut) -> None:
        for ranges, tag in zip(tasks, tags, strict=True):
            rt.submit(touch("-DHAS_TENSORS"), tag(data), *words(ranges))

    return program


def test_random_build_graphs_have_the_races_of_the_oracle(build_graph: Device) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(PROGRAMS):
        tasks = [random_ranges(numbers) for _ in range(8)]
        edges = [pair for pair in combinations(range(8), 2) if numbers.random() < 0.2]
        graph = build_graph.graph(stated(tasks, edges), np.zeros(BYTES, np.uint8))
        assert races(graph) == expected(graph, tasks), (tasks, edges)


def test_random_tensor_programs_have_the_races_of_the_oracle(tensors: Device) -> None:
    """The tags are random, so they order some of the tasks that conflict, and not others."""
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(PROGRAMS):
        tasks = [random_ranges(numbers) for _ in range(8)]
        tags = [numbers.choice((In, InOut, NoDep)) for _ in tasks]
        graph = tensors.graph(derived(tasks, tags), np.zeros(BYTES, np.uint8))
        assert races(graph) == expected(graph, tasks), (tasks, tags)


def test_each_form_of_access_is_measured_to_the_byte(build_graph: Device, tmp_path: Path) -> None:
    check_forms(build_graph, tmp_path)


@pytest.mark.toolchain
def test_clang_reports_each_form_of_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = shutil.which("clang++") or shutil.which("clang++-14")
    assert clang, "clang++ is missing; install the toolchain profile"
    monkeypatch.setenv("CXX", clang)
    with measuring("host_build_graph", 2) as device:
        check_forms(device, tmp_path)


def check_forms(build_graph: Device, tmp_path: Path) -> None:
    """Require the exact bytes of the kernel in ``forms.cpp``."""
    forms = CoreCallable(KernelSource(KERNELS / "forms.cpp"), "aiv", name="forms")

    def program(rt: Any, source: In, target: InOut) -> None:
        rt.add_task(forms, (source, target, 40))

    graph = build_graph.graph(program, *(np.zeros(1024, np.uint8) for _ in range(2)))
    graph.log.save(tmp_path / "log.npz")
    log = AccessLog.load(tmp_path / "log.npz")
    assert log.is_measured
    base = {buffer.name: buffer.address for buffer in log.buffers}

    def measured(name: str, kind: int) -> list[tuple[int, int]]:
        rows = log.measured[log.measured["kind"] == kind]
        return [
            (int(row["begin"]) - base[name], int(row["end"]) - base[name])
            for row in rows
            if 0 <= int(row["begin"]) - base[name] < 1024
        ]

    common = [(0, 48), (64, 96), (128, 168)]
    every_second = [(512 + 2 * i, 513 + 2 * i) for i in range(16)]
    assert measured("source", WRITE) == []
    assert measured("source", READ) == [
        *common,
        (320, 400),
        *every_second,
        (704, 705),
        (768, 776),
        (800, 808),
    ]
    assert measured("target", READ) == [(640, 644)]
    written = [*common, (256, 280), (320, 400), (512, 528), (640, 644), (704, 705), (768, 769)]
    assert measured("target", WRITE) == written
    assert graph.check().is_clean


def one_task(device: Device, *ranges: tuple[int, int, int], tag: Any = InOut) -> TaskGraph:
    """Return the graph of a task that touches these bytes of the second of two buffers."""

    def add(rt: Any, other: In, data: In) -> None:
        rt.add_task(touch(), (data, *words(ranges)))

    def submit(rt: Any, other: In, data: InOut) -> None:
        rt.submit(touch("-DHAS_TENSORS"), tag(data), *words(ranges))

    program = add if device.config["runtime"] == "host_build_graph" else submit
    return device.graph(program, *(np.zeros(BYTES, np.uint8) for _ in range(2)))


NOTHING = (0, 0, 0)


@pytest.mark.parametrize("runtime", ["build_graph", "tensors"])
@pytest.mark.parametrize(("write", "verb"), [(0, "reads"), (1, "writes")])
def test_accesses_outside_of_a_buffer_are_found(
    runtime: str, write: int, verb: str, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue(runtime)
    findings = one_task(device, (60, BYTES + 3, write), (-2, 0, write)).check()
    (found,) = findings.outside
    assert str(found).startswith(f"touch#0 {verb} 5 bytes of data (bytes -2:67): data has 64 bytes")
    assert not findings.is_clean


@pytest.mark.parametrize("runtime", ["build_graph", "tensors"])
def test_an_access_far_from_every_buffer_is_no_offset_of_one(
    runtime: str, request: pytest.FixtureRequest
) -> None:
    device = request.getfixturevalue(runtime)
    far = 1 << 16
    findings = one_task(device, (far, far + 4, 1), (-2, 0, 1)).check()
    near, wild = sorted(findings.outside, key=lambda found: not found.buffer)
    assert str(near).startswith("touch#0 writes 2 bytes of data (bytes -2:0): data has 64 bytes")
    assert (wild.buffer, wild.end - wild.begin, wild.count) == ("", 4, 4)
    assert f"touch#0 writes 4 bytes at {wild.begin:#x} and after: far from every" in str(wild)
    assert wild.begin > 1 << 32, "it is an address"


@pytest.mark.parametrize("runtime", ["build_graph", "tensors"])
def test_an_access_beyond_a_buffer_reaches_no_other_buffer_of_the_task(
    runtime: str, request: pytest.FixtureRequest
) -> None:
    """The sizes leave no padding; the accesses are off by one, and by the size of the buffer."""
    size = 4096
    begins = (-size, -1, size, 2 * size - 1)

    def add(rt: Any, first: InOut, second: InOut) -> None:
        for data, other in ((first, second), (second, first)):
            for begin in begins:
                rt.add_task(touch(), (data, begin, begin + 1, 0, *NOTHING, other))

    def submit(rt: Any, first: InOut, second: InOut) -> None:
        tensors = [first, second, rt.tensor((size,), "uint8"), rt.tensor((size,), "uint8")]
        rt.submit(touch("-DHAS_TENSORS"), Out(tensors[2]), 0, size, 1, *NOTHING)
        rt.submit(touch("-DHAS_TENSORS"), Out(tensors[3]), 0, size, 1, *NOTHING)
        for data in tensors:
            others = [InOut(other) for other in tensors if other is not data]
            for begin in begins:
                access = begin, begin + 1, 0, *NOTHING
                rt.submit(touch("-DHAS_TENSORS", "-DSCALARS=4"), InOut(data), *others, *access)

    program = add if runtime == "build_graph" else submit
    arrays = [np.zeros(size, np.uint8) for _ in range(2)]
    graph = request.getfixturevalue(runtime).graph(program, *arrays)
    found = graph.check().outside
    tasks = [task.index for task in graph.tasks if len(graph) == 8 or task.index > 1]
    assert [one.task.index for one in found if one.task] == tasks
    named = [(one.buffer, one.begin) for one in found[:8]]
    assert named == [(name, begin) for name in ("first", "second") for begin in begins]


def test_accesses_outside_of_a_declared_region_are_found(tensors: Device) -> None:
    """They race with no task: an edge between the tasks would not make them right."""

    def program(rt: Any, data: InOut) -> None:
        kernel_of = touch("-DHAS_TENSORS")
        rt.submit(kernel_of, In(data[16:48]), 8, 24, 0, 40, 50, 1)
        rt.submit(kernel_of, InOut(data[48:64]), 48, 64, 1, *NOTHING)

    findings = tensors.graph(program, np.zeros(BYTES, np.uint8)).check()
    line = program.__code__.co_firstlineno + 2
    assert [str(found) for found in findings.outside] == [
        f"touch#0 {access}: outside of its declared region data[16:48]  {__file__}:{line}"
        for access in ("reads 8 bytes of data (bytes 8:16)", "writes 2 bytes of data (bytes 48:50)")
    ]
    (found,) = findings.undeclared
    assert "writes 8 bytes of data (bytes 40:48): declared as input" in str(found)
    assert findings.races == ()
    assert not findings.is_clean


def test_a_write_to_an_input_is_found(build_graph: Device, tensors: Device) -> None:
    (found,) = one_task(tensors, (8, 12, 1), NOTHING, tag=In).check().undeclared
    assert str(found).startswith("touch#0 writes 4 bytes of data (bytes 8:12): declared as input")
    (found,) = one_task(build_graph, (8, 12, 1), NOTHING).check().undeclared
    assert "bytes of data (bytes 8:12): an input of the run" in str(found)


def test_a_declared_output_that_no_task_writes_is_found(tensors: Device) -> None:
    findings = one_task(tensors, (0, 60, 1), NOTHING, tag=Out).check()
    (found,) = findings.unwritten_outputs
    assert "does not write 4 bytes of data (bytes 60:64): declared OUTPUT" in str(found)
    assert not findings.is_clean
    assert one_task(tensors, (0, 64, 1), NOTHING, tag=Out).check().unwritten_outputs == ()


def test_an_output_of_a_build_graph_that_no_task_writes_is_found(build_graph: Device) -> None:
    def program(end: int) -> Callable[..., None]:
        def add(rt: Any, data: Out, other: Out) -> None:
            rt.add_task(touch(), (data, 0, end, 1, *NOTHING))

        return add

    arrays = [np.zeros(BYTES, np.uint8) for _ in range(2)]
    findings = build_graph.graph(program(60), *arrays).check()
    assert [str(found) for found in findings.unwritten_outputs] == [
        "no task writes 4 bytes of data (bytes 60:64): an output of the run",
        "no task writes 64 bytes of other (bytes 0:64): an output of the run",
    ]
    assert not findings.is_clean
    (found,) = build_graph.graph(program(64), *arrays).check().unwritten_outputs
    assert found.buffer == "other"


@pytest.mark.parametrize("runtime", ["build_graph", "tensors"])
def test_a_crash_keeps_what_was_measured_before(
    runtime: str, request: pytest.FixtureRequest
) -> None:
    far = 1 << 50
    tasks = [((BYTES, BYTES + 1, 1), NOTHING), ((far, far + 1, 0), NOTHING)]
    program = stated(tasks, [(0, 1)]) if runtime == "build_graph" else derived(tasks, [InOut] * 2)
    device = request.getfixturevalue(runtime)
    with pytest.raises(
        TaskFailedError, match=r"touch \(func_id 1\) crashed with SIGSEGV"
    ) as caught:
        device.graph(program, np.zeros(BYTES, np.uint8))
    note = "\n".join(caught.value.__notes__)
    offset = 1 if runtime == "build_graph" else 2
    line = f"{__file__}:{program.__code__.co_firstlineno + offset}"
    assert f"touch#0 writes 1 byte of data (bytes 64:65): data has 64 bytes  {line}" in note
    assert "touch#1 reads 1 byte at 0x" in note
    assert "far from every buffer of the task" in note
    assert device.graph(stated([], []), np.zeros(BYTES, np.uint8)).check().is_clean


def test_a_read_of_bytes_that_nothing_wrote_is_found(tensors: Device) -> None:
    def program(rt: Any, data: InOut) -> None:
        part = rt.tensor((BYTES,), "uint8")
        kernel_of = touch("-DHAS_TENSORS")
        rt.submit(kernel_of, Out(part), 0, 60, 1, *NOTHING)
        rt.submit(kernel_of, In(part), 58, 62, 0, *NOTHING)

    (found,) = tensors.graph(program, np.zeros(BYTES, np.uint8)).check().uninitialised_reads
    assert "touch#1 reads 2 bytes of touch#0.0 (bytes 60:62): no earlier task wrote" in str(found)


def test_declared_pairs_fail_only_if_their_bytes_conflict(tensors: Device) -> None:
    def program(second: int) -> Callable[..., None]:
        def submit(rt: Any, data: InOut) -> None:
            kernel_of = touch("-DHAS_TENSORS")
            rt.submit(kernel_of, NoDep(data), 0, 32, 1, *NOTHING)
            rt.submit(kernel_of, NoDep(data), second, 64, 1, *NOTHING)
            rt.submit(kernel_of, InOut(data), *NOTHING, *NOTHING)

        return submit

    data = np.zeros(BYTES, np.uint8)
    apart = tensors.graph(program(32), data).check()
    assert apart.races == ()
    assert len(apart.declared) == 2
    (race,) = tensors.graph(program(31), data).check().races
    assert (race.begin, race.end, race.shared_bytes) == (31, 32, 1)
    assert race.fix == "declare data of touch#0 as OUTPUT"
    with pytest.raises(RaceError, match="share 1 bytes of data"):
        tensors.run(program(31), data, hazards="check")


def test_blocks_of_one_task_that_write_the_same_bytes_race(tensors: Device) -> None:
    def program(rt: Any, data: InOut) -> None:
        rt.submit_block(touch("-DHAS_TENSORS"), InOut(data), 4, 5, 1, *NOTHING, block_dim=2)

    (race,) = tensors.graph(program, np.zeros(BYTES, np.uint8)).check().races
    assert race.first == race.second
    assert {race.first_tag, race.second_tag} == {"block 0 writes", "block 1 writes"}
    assert race.shared_bytes == 1


@kernel(core="aiv")
def increment(data: InOut) -> None:
    data += 1


def test_python_kernels_count_as_touching_their_arrays(build_graph: Device) -> None:
    def program(rt: Any, data: InOut) -> None:
        rt.add_task(increment, (data,))
        rt.add_task(touch(), (data, 0, 4, 0, *NOTHING))

    findings = build_graph.graph(program, np.zeros(BYTES, np.uint8)).check()
    assert findings.unmeasured == 1
    (race,) = findings.races
    assert race.shared_bytes == 4
    assert race.fix == "add an edge from increment#0 to touch#1"
    assert "not measured: 1 tasks" in str(findings)


def test_the_setting_check_checks_each_run() -> None:
    settings = {"measure": True, "sim.mode": "deterministic", "hazards": "check"}
    data = np.zeros(BYTES, np.uint8)
    tasks = [((0, 8, 1), NOTHING), ((4, 8, 0), NOTHING)]
    with open_device("a2a3sim", runtime="host_build_graph", settings=settings) as device:
        device.run(stated(tasks, [(0, 1)]), data)
        with pytest.raises(RaceError, match="1 pair of tasks races; touch#0 and touch#1"):
            device.run(stated(tasks, []), data)
        with pytest.raises(RaceError, match="touch#0 writes 1 byte of data") as caught:
            device.run(stated([((BYTES, BYTES + 1, 1), NOTHING)], []), data)
        assert caught.value.races == 0


def test_without_accesses_a_check_is_refused(build_graph: Device) -> None:
    def program(rt: Any, data: InOut) -> None:
        rt.add_task(increment, (data,))

    with open_device("a2a3sim", runtime="host_build_graph") as device:
        graph = device.graph(program, np.zeros(BYTES, np.uint8))
        with pytest.raises(UnsupportedError, match="measure the accesses"):
            graph.check()


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CoreCallable]:
    """The kernel `touch` as two libraries: for raw pointers, and for tensors."""
    folder = tmp_path_factory.mktemp("binaries")
    built = {}
    for name, options in {"build_graph": (), "tensors": ("-DHAS_TENSORS",)}.items():
        library = folder / f"{name}.so"
        source = str(KERNELS / "touch.cpp")
        command = ["c++", "-shared", "-fPIC", "-O1", *options, source, "-o", str(library)]
        subprocess.run(command, check=True)
        built[name] = CoreCallable(library, "aiv", name="touch")
    return built


PAGE = 4096


def is_page_with(found: Mismatch, byte: int) -> bool:
    """Return whether the bytes are one page with this byte; buffers do not begin at pages."""
    return found.count == PAGE == found.end - found.begin and found.begin <= byte < found.end


def test_binaries_that_share_pages_may_race(
    build_graph: Device, binaries: dict[str, CoreCallable]
) -> None:
    def program(rt: Any, first: In, data: InOut) -> None:
        kernel_of = binaries["build_graph"]
        one = rt.add_task(kernel_of, (data, 0, 4, 1, PAGE, PAGE + 1, 0))
        rt.add_task(kernel_of, (data, 8, 12, 0, *NOTHING))
        after = rt.add_task(kernel_of, (data, 16, 20, 1, *NOTHING))
        rt.add_successor(one, after)
        rt.add_task(kernel_of, (data, 2 * PAGE, 2 * PAGE + 1, 1, *NOTHING))
        rt.add_task(kernel_of, (first, PAGE, PAGE + 1, 1, *NOTHING))

    arrays = [np.zeros(4 * PAGE, np.uint8) for _ in range(2)]
    findings = build_graph.graph(program, *arrays).check()
    pairs = [(race.first.index, race.second.index) for race in findings.possible]
    assert pairs == [(0, 1), (1, 2)]
    assert findings.races == ()
    assert findings.measured_by_pages == 5
    (found,) = findings.undeclared
    assert str(found).startswith("touch#4 writes some 4096 bytes of first (bytes ")
    assert is_page_with(found, PAGE)
    assert "by pages only: 5 tasks" in str(findings)
    assert "possible races (coarse: known by pages): 2" in str(findings)


def test_binaries_that_write_pages_of_inputs_are_found(
    tensors: Device, binaries: dict[str, CoreCallable]
) -> None:
    def program(rt: Any, data: In, target: Out) -> None:
        kernel_of = binaries["tensors"]
        rt.submit(kernel_of, In(data), 0, PAGE, 0, PAGE, PAGE + 1, 1)
        rt.submit(kernel_of, Out(target), 0, PAGE, 1, 8 * PAGE, 8 * PAGE + 1, 0)

    arrays = [np.zeros(4 * PAGE, np.uint8) for _ in range(2)]
    findings = tensors.graph(program, *arrays).check()
    (found,) = findings.undeclared
    assert str(found).startswith("touch#0 writes some 4096 bytes of data (bytes ")
    assert is_page_with(found, PAGE)
    (found,) = findings.outside
    assert str(found).startswith("touch#1 reads some 4096 bytes of target (bytes ")
    assert is_page_with(found, 8 * PAGE)
    (found,) = findings.unwritten_outputs
    assert str(found).startswith("touch#1 does not write ")
    assert 2 * PAGE <= found.count <= 3 * PAGE
    assert found.end == 4 * PAGE
    assert findings.races == findings.possible == ()
