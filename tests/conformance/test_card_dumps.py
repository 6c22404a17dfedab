"""Dumps on the fake device: what the AICPU records is what the simulator records."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pto_core import plugins
from pto_core.errors import DeviceLostError, TaskFailedError, UnsupportedError
from pto_insight.dumps import TaskDump

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "01_vector"
COHORTS = ROOT / "plugins/runtime_pto2/tests/published_2026_08"
RUNTIMES = tuple(record.name for record in plugins.installed("runtime"))
PTO = Path(sys.executable).with_name("pto")
FOLDER = Path("1", "random.device0.run1")
INCLUDE = '#include "pto/abi/kernel.h"'
END = "x[i] * y[i];\n}\n"
TASKS = ["add#0", "add_scalar#1", "add_scalar#2", "multiply#3"]

pytestmark = pytest.mark.usefixtures("fake_card")


def pto(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [PTO, *map(str, words)]
    environment = os.environ | variables
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def dumped(
    out: Path, *options: str, case: Path = EXAMPLE, backend: str = "a2a3", **variables: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, TaskDump]]:
    """Run a case with a dump; return the process, and the dumps by the name of their files."""
    words = ("run", case, "-p", backend, "--case", "random", *options, "--out", out)
    process = pto(*words, **variables)
    files = sorted((out / FOLDER).glob("*.npz"))
    return process, {path.stem: TaskDump.read(path) for path in files}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the example, whose kernels a test changes."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "copy"))


def change(case: Path, kernel: str, text: str, replacement: str) -> None:
    """Change a kernel, for both forms of arguments."""
    for folder in ("aiv", "aiv_tensors"):
        path = case / "kernels" / folder / f"{kernel}.cpp"
        source = path.read_text()
        assert source.count(text) == 1
        path.write_text(source.replace(text, replacement))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_card_and_the_simulator_dump_the_same_arrays(runtime: str, tmp_path: Path) -> None:
    options = ("-r", runtime, "--dump")
    process, found = dumped(tmp_path / "card", *options)
    assert process.returncode == 0, process.stderr
    _, expected = dumped(tmp_path / "simulator", *options, backend="a2a3sim")
    assert list(found) == list(expected) == TASKS
    for name, dump in found.items():
        other = expected[name]
        assert (dump.backend, dump.state, dump.library[-3:]) == ("a2a3", "returned", ".so")
        assert dump.where == other.where != ""
        assert dump.scalars.keys() == other.scalars.keys()
        assert [
            (one.name, one.tag, one.dtype, one.shape, one.strides) for one in dump.arguments
        ] == [(one.name, one.tag, one.dtype, one.shape, one.strides) for one in other.arguments]
        for phase in ("after", "before"):
            arrays, others = getattr(dump, phase), getattr(other, phase)
            assert arrays.keys() == others.keys()
            for at in arrays:
                is_written = phase == "after" or at != max(arrays)  # the last one is the output
                assert not is_written or arrays[at].tobytes() == others[at].tobytes()
    file = tmp_path / "card" / FOLDER / "multiply#3.npz"
    assert pto("replay", file).stdout == "multiply#3: as in the run\n"
    assert "run 1 of device 0, a2a3, " in pto("dump", "show", file).stdout
    code = tmp_path / "code_of_a_card"
    code.write_bytes(Path(found["multiply#3"].library).read_bytes().replace(b"\3\0", b"\2\0", 1))
    replace(found["multiply#3"], library=str(code)).write(file)
    refused = pto("replay", file)
    assert refused.returncode == UnsupportedError.exit_code
    assert "its kernel is code for another machine, such as a card; dump" in refused.stderr


def test_a_selection_by_kernel_and_number_and_the_levels(tmp_path: Path) -> None:
    options = ("-r", "tensormap_and_ringbuffer", "--dump")
    process, found = dumped(tmp_path / "number", *options, "add_scalar#2,multiply:0")
    assert list(found) == ["add_scalar#2", "multiply#3"], process.stderr
    assert ([*found["multiply#3"].before], found["multiply#3"].left_out) == ([0], 2)
    _, found = dumped(tmp_path / "outputs", *options, "add", "--dump-level", "outputs")
    assert ([*found], found["add#0"].before, [*found["add#0"].after]) == (["add#0"], {}, [2])
    process, found = dumped(tmp_path / "failed", *options, "--dump-level", "failed")
    assert (process.returncode, found) == (0, {})
    process, found = dumped(tmp_path / "other", *options, "other")
    assert (process.returncode, found) == (0, {})
    assert "no task of the run matches 'other'; its kernels are add, " in process.stderr


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_equal_programs_have_equal_hashes_on_both_backends(runtime: str, tmp_path: Path) -> None:
    words = ("bisect", EXAMPLE, "-r", runtime, "--case", "random", "--out", tmp_path / "out")
    done = pto(*words, "--against", "-p", "a2a3")
    assert done.stdout == "no difference: 4 tasks have equal outputs\n", done.stderr
    seeded = pto(*words, "--seed", "3", "--against", "-p", "a2a3")
    assert "the backend 'a2a3' has no deterministic mode; leave out --seed" in seeded.stderr


# Memory that host_build_graph allocates has other bytes on a device before a task writes to it.
@pytest.mark.parametrize("runtime", ["aicpu_build_graph", "tensormap_and_ringbuffer"])
def test_a_bisection_names_the_kernel_that_is_wrong_on_the_card(
    runtime: str, tmp_path: Path, copy: Path
) -> None:
    change(copy, "multiply", "i < count", "i + 1 < count")
    done = pto(
        *("bisect", EXAMPLE, "-r", runtime, "--case", "random", "--dtype", "float32"),
        *("--out", tmp_path / "out", "--against", copy, "-p", "a2a3"),
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("the first task that differs is multiply#3  "), done.stdout
    assert "  2: f: 1 of 16,384 elements; first at [16383]: " in done.stdout
    assert "1 of 4 tasks have other bits\n" in done.stdout
    files = sorted((tmp_path / "out" / "1").glob("[ab]/*/*"))
    assert [file.name for file in files] == ["multiply#3.npz"] * 2
    assert [TaskDump.read(file).backend for file in files] == ["a2a3sim", "a2a3"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_failed_task_has_its_arrays_before_and_after(
    runtime: str, tmp_path: Path, copy: Path
) -> None:
    change(copy, "multiply", END, END[:-2] + '  PTO_ASSERT(false, "planted");\n}\n')
    change(copy, "multiply", INCLUDE, f'{INCLUDE}\n#include "pto/kernel/print.hpp"')
    options = ("-r", runtime, "--dump-level", "failed")
    process, found = dumped(tmp_path / "out", *options, case=copy)
    assert process.returncode == TaskFailedError.exit_code, process.stderr
    (dump,) = found.values()
    assert (dump.kernel, dump.state) == ("multiply", "failed")
    assert len(dump.before) == 3
    x, y, _ = (one.view(np.float32).reshape(-1) for one in (*dump.before.values(),))
    np.testing.assert_array_equal(dump.after[2].view(np.float32).reshape(-1), x * y)


FAULTS = ("*reinterpret_cast<volatile int*>(8) = 1;", "for (volatile int i = 0;; i = 0);")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_device_keeps_the_arrays_before_the_call(
    fault: str, tmp_path: Path, copy: Path
) -> None:
    change(copy, "multiply", END, f"{END[:-2]}  {fault}\n}}\n")
    limits = {"PTO_A2A3_KERNEL_TIMEOUT_S": "3", "PTO_A2A3_SYNCHRONISE_TIMEOUT_S": "8"}
    options = ("-r", "tensormap_and_ringbuffer", "--dump-level", "failed")
    process, found = dumped(tmp_path / "out", *options, case=copy, **limits)
    assert process.returncode != 0
    (dump,) = found.values()
    assert (dump.kernel, dump.task, dump.state) == ("multiply", None, "did not return")
    assert (len(dump.before), dump.after) == (3, {})


def test_a_device_whose_memory_cannot_be_read_has_no_dump(tmp_path: Path, copy: Path) -> None:
    change(copy, "multiply", INCLUDE, f"#include <csignal>\n{INCLUDE}")
    change(copy, "multiply", END, f"{END[:-2]}  std::raise(SIGKILL);\n}}\n")
    options = ("-r", "tensormap_and_ringbuffer", "--dump-level", "failed")
    process, found = dumped(tmp_path / "out", *options, case=copy)
    assert (process.returncode, found) == (DeviceLostError.exit_code, {})
    assert "not all records of calls could be read: Input/output error" in process.stderr


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PTO_DUMP_LIMIT_BYTES": "200000"}, "the limit dump_limit_bytes of 200,000 bytes"),
        ({"PTO_A2A3_POOL_MIB": "509"}, "the device had "),
    ],
)
def test_the_limit_that_is_reached_is_stated(
    variables: dict[str, str], reason: str, tmp_path: Path
) -> None:
    options = ("-r", "tensormap_and_ringbuffer", "--dump")
    process, found = dumped(tmp_path / "out", *options, **variables)
    assert process.returncode == 0, process.stderr
    (line,) = [one for one in process.stderr.splitlines() if "were not kept" in one]
    assert reason in line
    assert 0 < len(found) < 4


COHORT = """
from pathlib import Path
import numpy as np
import pto_core
from pto_core.chip import ChipCallable, CoreCallable, KernelSource, OrchestrationSource

folder = Path({folder!r})
kernels = {{
    number: CoreCallable(KernelSource(folder / "cohort_kernel.cpp", [f"-D{{macro}}"]), core)
    for number, (core, macro) in enumerate((("aiv", "__DAV_VEC__"), ("aic", "__DAV_CUBE__")))
}}
chip = ChipCallable(OrchestrationSource(folder / "cohorts.cpp"), kernels, ("inout", "scalar"))
for backend in ("a2a3", "a2a3sim"):
    config = pto_core.CallConfig(enable_dump_tensor=3, output_prefix={out!r} + "/" + backend)
    options = dict(runtime="tensormap_and_ringbuffer")
    if backend == "a2a3sim":
        options["settings"] = {{"sim.blocks": 2}}
    with pto_core.open_device(backend, **options) as device:
        out = np.zeros(128, np.float32)
        for file in device.run(chip, out, 0, config=config).dumps:
            print(backend, file)
"""


def test_blocks_and_lanes_of_a_program_of_2026_08(stranger, tmp_path: Path) -> None:
    program = COHORT.format(folder=str(COHORTS), out=str(tmp_path))
    lines = [line.split(maxsplit=1) for line in stranger.run_program(program).splitlines()]
    card, simulator = (
        {Path(file).stem: TaskDump.read(Path(file)) for name, file in lines if name == backend}
        for backend in ("a2a3", "a2a3sim")
    )
    assert card.keys() == simulator.keys()
    firsts = 0
    for name, dump in card.items():
        other = simulator[name]
        about = (dump.is_together, dump.block, dump.blocks, dump.lane, dump.scalars)
        assert about == (other.is_together, other.block, other.blocks, other.lane, other.scalars)
        assert dump.before.keys() == other.before.keys()
        if dump.block or dump.lane is not None:
            continue
        # The first core of a task ends last, so its arrays have what all cores wrote.
        firsts += 1
        assert dump.after.keys() == other.after.keys() == {0, 1}
        for at, array in dump.after.items():
            assert array.tobytes() == other.after[at].tobytes()
    assert firsts == 100


def test_a_graph_that_is_built_on_the_device_has_its_log(tmp_path: Path) -> None:
    graphs = []
    for backend in ("a2a3", "a2a3sim"):
        file = tmp_path / f"{backend}.json"
        words = ("graph", EXAMPLE, "-r", "tensormap_and_ringbuffer", "-p", backend, "--out", file)
        made = pto(*words)
        assert made.returncode == 0, made.stderr
        graphs.append(file.read_text())
    assert graphs[0] == graphs[1]
    checked = pto("check", EXAMPLE, "-r", "tensormap_and_ringbuffer", "-p", "a2a3")
    assert (checked.returncode, checked.stdout) == (0, "no races\n")
