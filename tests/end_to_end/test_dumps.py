"""Dumps: the arrays of tasks before and after their kernels, in files."""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core import (
    CallConfig,
    ChipCallable,
    In,
    InOut,
    Out,
    Scalar,
    TaskArgs,
    TensorArgType,
    Worker,
    kernel,
    open_device,
)
from pto_core.chip import CoreCallable, KernelSource, OrchestrationSource
from pto_core.errors import TaskFailedError, UsageError
from pto_insight.commands import dump as dump_command
from pto_insight.dumps import TaskDump
from pto_insight.dumps.recording import recover, take_hashes

COHORTS = Path(__file__).parents[2] / "plugins/runtime_pto2/tests/published_2026_08"


@kernel(core="aiv")
def add(x: In, y: In, out: Out):
    out[...] = x + y


@kernel(core="aiv")
def scale(x: InOut, by: Scalar):
    x *= by


@kernel(core="aiv")
def fail(x: InOut):
    x[0] = 7
    raise ValueError("planted")


def tiles(rt, a: In, f: InOut):
    made = rt.tensor((4,), "float32")
    for row in range(2):
        rt.submit(add, a[row], a[2], made)
        rt.submit(scale, f[1:3, 2:4], 2.0)


TAGS = (TensorArgType.INPUT, TensorArgType.INOUT)


def inputs() -> tuple[Any, Any]:
    return np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 6), np.float32)


def dumps_of(files: tuple[Path, ...]) -> dict[str, TaskDump]:
    return {path.stem: TaskDump.read(path) for path in files}


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_each_task_has_its_arrays_before_and_after(tmp_path: Path, mode: str) -> None:
    a, f = inputs()
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime="pto2", settings={"sim.mode": mode}) as device:
        report = device.run(tiles, a, f, config=config, dump=True)
        assert device.run(tiles, *inputs()).dumps == ()
    folder = tmp_path / "it.device0.run1"
    assert sorted(path.name for path in folder.iterdir()) == [
        "add#0.npz", "add#2.npz", "scale#1.npz", "scale#3.npz",
    ]  # fmt: skip
    found = dumps_of(report.dumps)
    assert list(found) == ["add#0", "scale#1", "add#2", "scale#3"], "in the order of submits"
    task = found["add#2"]
    assert [(one.name, one.tag) for one in task.arguments] == [
        ("a[1:2, 0:4]", "INPUT"), ("a[2:3, 0:4]", "INPUT"), ("add#0.2", "OUTPUT"),
    ]  # fmt: skip
    np.testing.assert_array_equal(task.values("before", 0), a[1])
    np.testing.assert_array_equal(task.values("after", 2), a[1] + a[2])
    assert task.values("after", 0) is None, "an input that is not changed is kept once"
    assert task.where.startswith(f"{__file__}:")
    assert (task.state, task.core[:3], task.run, task.backend) == ("returned", "AIV", 1, "a2a3sim")
    tile = found["scale#3"]
    assert (tile.argument(0).shape, tile.argument(0).strides) == ((2, 2), (24, 4))
    np.testing.assert_array_equal(tile.values("before", 0), np.full((2, 2), 2))
    np.testing.assert_array_equal(tile.values("after", 0), f[1:3, 2:4])
    assert tile.scalars == {1: int(np.float64(2).view(np.uint64))}


def test_a_selection_limits_tasks_tensors_and_runs(tmp_path: Path, caplog: Any) -> None:
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime="pto2") as device:

        def names(dump: str) -> list[str]:
            return list(dumps_of(device.run(tiles, *inputs(), config=config, dump=dump).dumps))

        assert names("add#2:2,scale@2") == ["add#2"]
        assert names("add#2:2,scale@2") == ["scale#1", "add#2", "scale#3"]
        (path,) = device.run(tiles, *inputs(), config=config, dump="add#2:add#0.2").dumps
        assert names("other") == []
        assert not (tmp_path / "it.device0.run4").exists()
        with pytest.raises(UsageError, match="does not select tasks"):
            device.run(tiles, *inputs(), dump="add#x")
        with pytest.raises(UsageError, match="dump is 3; pass the selected tasks"):
            device.run(tiles, *inputs(), dump=3)
    dump = TaskDump.read(path)
    assert ([one.argument for one in dump.arguments], dump.left_out) == ([2], 2)


def test_the_levels_are_those_of_enable_dump_tensor(tmp_path: Path) -> None:
    with open_device("a2a3sim", runtime="pto2", dump_select="add#2") as device:
        for level, before, after in ((2, set(), {2}), (3, {0, 1, 2}, {2})):
            config = CallConfig(enable_dump_tensor=level, output_prefix=str(tmp_path / "it"))
            (path,) = device.run(tiles, *inputs(), config=config).dumps
            dump = TaskDump.read(path)
            assert (set(dump.before), set(dump.after)) == (before, after)
        config = CallConfig(enable_dump_tensor=1, output_prefix=str(tmp_path / "it"))
        assert device.run(tiles, *inputs(), config=config).dumps == ()


@pytest.mark.parametrize("mode", ["threads", "deterministic"])
def test_only_the_task_that_fails_is_kept(tmp_path: Path, mode: str) -> None:
    def graph(rt, a: In, f: InOut):
        tiles(rt, a, f)
        rt.submit(fail, f[0])

    config = CallConfig(enable_dump_tensor=1, output_prefix=str(tmp_path / "it"))
    with (
        open_device("a2a3sim", runtime="pto2", settings={"sim.mode": mode}) as device,
        pytest.raises(TaskFailedError) as caught,
    ):
        device.run(graph, *inputs(), config=config)
    folder = tmp_path / "it.device0.run1"
    assert f"the arrays of tasks are in {folder}" in "".join(caught.value.__notes__)
    assert [path.name for path in folder.iterdir()] == ["fail#4.npz"]
    dump = TaskDump.read(folder / "fail#4.npz")
    assert (dump.state, dump.where.rpartition(":")[0]) == ("failed", __file__)
    np.testing.assert_array_equal(dump.values("before", 0), np.ones(6))
    np.testing.assert_array_equal(dump.values("after", 0), [7, 1, 1, 1, 1, 1])


def test_kernels_that_a_failed_assertion_ends_are_kept(tmp_path: Path) -> None:
    source = KernelSource(COHORTS / "cohort_kernel.cpp", ["-DBARRIER", "-DFAILS=1"])
    kernels = dict(enumerate([CoreCallable(source, "aiv"), CoreCallable(source, "aic")]))
    chip = ChipCallable(OrchestrationSource(COHORTS / "cohorts.cpp"), kernels, ("inout", "scalar"))
    config = CallConfig(enable_dump_tensor=1, output_prefix=str(tmp_path / "it"))
    device = open_device(runtime="pto2", block_dim=2)
    with device, pytest.raises(TaskFailedError, match="failed: place != FAILS") as caught:
        device.run(chip, np.zeros(128, np.float32), 1, config=config)
    dumps = [TaskDump.read(path) for path in tmp_path.glob("*/*.npz")]
    assert {dump.state for dump in dumps} == {"failed"}
    assert len(dumps) == int(str(caught.value).rpartition(" ")[2]), "of those that were ended, too"


@pytest.mark.parametrize("runtime", ["host_build_graph", "aicpu_build_graph"])
def test_tasks_with_addresses_have_whole_buffers(tmp_path: Path, runtime: str) -> None:
    def graph(rt, x: In, out: InOut):
        task = rt.add_task(add, (x, x, out))
        if runtime == "aicpu_build_graph":
            rt.publish(task)

    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime=runtime) as device:
        dump = TaskDump.read(device.run(graph, x, out, config=config, dump="add#0").dumps[0])
    assert [(one.argument, one.name) for one in dump.arguments] == [(0, "x"), (2, "out")]
    np.testing.assert_array_equal(dump.before[0].view(np.float32), x)
    np.testing.assert_array_equal(dump.after[2].view(np.float32), out)


def test_types_that_numpy_lacks_are_kept_as_bits(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def graph(rt, x: InOut, y: InOut):
        rt.submit(scale, x, 2.0)
        rt.submit(scale, y, 2.0)

    x = np.ones((2, 3), ml_dtypes.bfloat16)
    y = np.ones(4, ml_dtypes.float8_e4m3fn)
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime="pto2") as device:
        found = dumps_of(device.run(graph, x, y, config=config, dump=True).dumps)
    for name, array in (("scale#0", x), ("scale#1", y)):
        assert found[name].argument(0).dtype == array.dtype.name
        assert found[name].after[0].dtype.kind == "u"
        np.testing.assert_array_equal(found[name].values("after", 0), array)


def test_equal_outputs_have_equal_hashes(tmp_path: Path) -> None:
    def graph(rt, a: In, f: InOut, dense: InOut):
        rt.submit(scale, f[1:3, 2:514], 2.0)
        rt.submit(scale, dense, 2.0)
        rt.submit(add, a[0], a[1], rt.tensor((4,), "float32"))

    config = CallConfig(enable_dump_tensor=4, output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime="pto2") as device:

        def hashes(changed: int) -> list[tuple[int, int, int]]:
            dense = np.ones(1024, np.float32).reshape(2, 512)
            dense[1, changed] = 3
            f = np.ones((4, 514), np.float32)
            f[1:3, 2:514] = dense
            (path,) = device.run(graph, inputs()[0], f, dense, config=config).dumps
            rows = np.sort(take_hashes(path.parent), order="task")
            return [(argument, size, after) for _, after, argument, _, size in rows.tolist()]

        first, again, other = hashes(511), hashes(511), hashes(0)
    assert first == again
    assert first[0] == first[1], "the strides of a view do not change its hash"
    assert len({one[2] for one in (*first, *other)}) == 3
    assert [one[:2] for one in first] == [(0, 4096), (0, 4096), (2, 16)], "no input is hashed"


def test_the_limit_is_stated_when_it_is_reached(tmp_path: Path, capfd: Any) -> None:
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    settings = {"sim.mode": "deterministic", "dump_limit_bytes": 1500}
    with open_device("a2a3sim", runtime="pto2", settings=settings) as device:
        files = device.run(tiles, *inputs(), config=config, dump=True).dumps
        states = {(bool(one.after), one.state) for one in dumps_of(files).values()}
        assert (False, "not known") in states, "only the record before the call was kept"
        assert states <= {(False, "not known"), (True, "returned")}
        assert device.run(tiles, *inputs(), config=config, dump="#9").dumps == ()
    shown = capfd.readouterr().err
    reason = "records of calls were not kept; the limit dump_limit_bytes of 1,500 bytes is reached"
    assert shown.count(reason) == 2
    assert "no task of the run matches" not in shown


def test_what_only_one_dump_has_is_a_difference(tmp_path: Path, capsys: Any) -> None:
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    with open_device("a2a3sim", runtime="pto2") as device:
        for dump in (True, "add#0:2,add#2", "add#0:1,add#2"):
            device.run(tiles, *inputs(), config=config, dump=dump)
    folders = [tmp_path / f"it.device0.run{run}" for run in (1, 2, 3)]

    def compare(first: Path, second: Path) -> str:
        parser = argparse.ArgumentParser()
        dump_command.add_arguments(parser)
        given = parser.parse_args(["diff", str(first), str(second)])
        code = dump_command.run(given)
        shown = capsys.readouterr().out
        assert code == (shown != "0 of 1 tasks differ\n")
        return shown

    file = folders[0] / "add#2.npz"
    assert compare(file, folders[1] / file.name) == "0 of 1 tasks differ\n"
    shown = compare(folders[1], folders[2])
    assert "  1: a[2:3, 0:4] before: only in the second dump\n" in shown
    assert "  2: add#0.2 after: only in the first dump\n" in shown
    assert shown.endswith("\n1 of 2 tasks differ\n")
    for task in (folders[1] / "add#0.npz", folders[2] / "add#0.npz"):
        task.unlink()
    compare(folders[1], folders[2])
    only = f"only in {folders[0]}: add#0, scale#1, scale#3\n0 of 1 tasks differ\n"
    assert compare(folders[0], folders[1]) == only
    replace(TaskDump.read(file), state="failed").write(file)
    assert "  failed -> returned\n" in compare(file, folders[1] / file.name)


def test_a_recording_belongs_to_its_run(tmp_path: Path) -> None:
    folder = tmp_path / "it.device0.run1"
    config = CallConfig(output_prefix=str(tmp_path / "it"))
    meanwhile: list[Any] = []

    def graph(rt, a: In, f: InOut):
        tiles(rt, a, f)
        meanwhile.append((recover(folder), (folder / "calls").exists()))
        with (
            open_device("a2a3sim", runtime="pto2") as other,
            pytest.raises(UsageError, match=f"another run writes its dump to {folder}"),
        ):
            other.run(tiles, *inputs(), config=config, dump=True)

    with open_device("a2a3sim", runtime="pto2") as device:
        assert len(device.run(graph, *inputs(), config=config, dump=True).dumps) == 4
    assert meanwhile == [((), True)]
    assert recover(folder) == ()


def outcome_of(path: Path) -> str:
    """Return what ``pto dump show`` prints; nothing if it refuses the path by its name."""
    parser = argparse.ArgumentParser()
    dump_command.add_arguments(parser)
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            dump_command.run(parser.parse_args(["show", str(path)]))
        except (UsageError, OSError) as error:
            if str(path) in str(error):
                return ""
            raise
    return shown.getvalue()


def damaged(content: bytes, numbers: random.Random) -> bytes:
    """Return the content with other bits, or without its end."""
    if numbers.random() < 0.2:
        return content[: numbers.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(numbers.choice((1, 1, 4))):
        changed[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    return bytes(changed)


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    @kernel(core="aiv")
    def keep(x: InOut):
        shutil.copy(tmp_path / "it.device0.run1" / "calls", kept)

    def graph(rt, a: In, f: InOut):
        tiles(rt, a, f)
        rt.submit(keep, f)

    with open_device("a2a3sim", runtime="pto2") as device:
        config = CallConfig(output_prefix=str(tmp_path / "it"))
        file = device.run(graph, *inputs(), config=config, dump=True).dumps[0]
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    whole, right = file.read_bytes(), outcome_of(file)
    results = set()
    for _ in range(60):
        file.write_bytes(damaged(whole, numbers))
        results.add(outcome_of(file))
    assert results == {right, ""}
    calls, results = kept.read_bytes(), set()
    for number in range(60):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "calls").write_bytes(damaged(calls, numbers))
        results.add(outcome_of(folder) == "")
    assert results == {True, False}


@pytest.mark.parametrize("dtype", ["str", "object", "f4,i4", "(2,)f4", "none"])
def test_a_type_that_has_no_numbers_is_refused(dtype: str) -> None:
    parser = argparse.ArgumentParser()
    dump_command.add_arguments(parser)
    with pytest.raises(UsageError, match="--dtype is"):
        dump_command.run(parser.parse_args(["show", "any.npz", "--dtype", dtype]))


def test_a_recording_that_others_can_write_is_not_converted(tmp_path: Path) -> None:
    file = tmp_path / "calls"
    file.touch()
    file.chmod(0o666)
    with pytest.raises(UsageError, match=f"{file} is not converted, .*every user can change it"):
        recover(tmp_path)


def test_earlier_files_remain_until_the_run_has_others(tmp_path: Path) -> None:
    folder = tmp_path / "it.device0.run1"
    config = CallConfig(output_prefix=str(tmp_path / "it"))

    def run(*arrays: Any, dump: str) -> list[str]:
        with open_device("a2a3sim", runtime="pto2") as device:
            device.run(tiles, *arrays, config=config, dump=dump)
        return sorted(path.name for path in folder.iterdir())

    assert run(*inputs(), dump="add") == ["add#0.npz", "add#2.npz"]
    with pytest.raises(UsageError):
        run(inputs()[0], dump="scale")
    assert sorted(path.name for path in folder.iterdir()) == ["add#0.npz", "add#2.npz"]
    assert run(*inputs(), dump="scale#3") == ["scale#3.npz"]


def test_chips_of_a_worker_write_their_dumps(tmp_path: Path) -> None:
    prefix = str(tmp_path / "it")
    config = CallConfig(enable_dump_tensor=3, output_prefix=prefix)
    with Worker(3, runtime="pto2", device_ids=[0, 1], dump_select="scale") as worker:
        chip = worker.register(ChipCallable(tiles))
        arrays = [worker.array(one) for one in inputs()]

        def program(orch, args, _):
            for number in (0, 1):
                given = TaskArgs()
                for array, tag in zip(arrays, TAGS, strict=True):
                    given.add_tensor(array, tag)
                orch.submit_next_level(chip, given, config, worker=number)

        worker.run(program)
    for number in (0, 1):
        files = (tmp_path / f"it.device{number}.run1").iterdir()
        assert sorted(path.name for path in files) == ["scale#1.npz", "scale#3.npz"]
