"""Data that a child sends to its parent and to programs: reports, jobs, the activity page."""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path

import pytest

from pto_core.cases.activity import ActivityPage, core_name, describe
from pto_core.cases.job import Job, locate
from pto_core.cases.report import (
    CaseReport,
    Copies,
    CoreShare,
    OutputReport,
    ProcessReport,
    RunTimes,
    report_from_json,
)
from pto_core.errors import TaskFailedError, UsageError

FULL = CaseReport(
    case="one",
    folder="/somewhere",
    backend="b",
    runtime="r",
    device=1,
    passed=False,
    exit_code=4,
    wall=1.5,
    repeats=(RunTimes(0.1, 0.2, 0.3),),
    tasks=4,
    cores=(CoreShare("aiv", 4, 2, 4, 0.25, (3, 0, 1, 0)),),
    copies=Copies(1, 2, 3, 4),
    outputs=(
        OutputReport(
            "f", (2, 2), "float32", 4, 1, float("inf"), (0, 1), (0, 1), float("nan"), 1.0, 0.0, 0.0
        ),
    ),
    statistics={"edges": 3},
    process=ProcessReport("fake device", 1234, 62),
    errors=(TaskFailedError("broken", task=3, kernel="k"),),
)


def test_report_survives_json() -> None:
    FULL.errors[0].add_note("a kernel's traceback")
    text = json.dumps(FULL.to_json(), allow_nan=False)
    back = report_from_json(json.loads(text))
    assert json.dumps(back.to_json(), allow_nan=False) == text
    assert back.cores == FULL.cores
    assert back.outputs[0].max_error == float("inf")
    assert isinstance(back.errors[0], TaskFailedError)
    assert (back.errors[0].task, back.errors[0].kernel) == (3, "k")
    assert back.errors[0].__notes__ == ["a kernel's traceback"]
    with pytest.raises(TaskFailedError, match="broken"):
        back.check()


def test_json_keys_are_stable() -> None:
    assert sorted(FULL.to_json()) == [
        "api", "atol", "backend", "build", "case", "compared", "compile", "copies", "copy", "cores",
        "device", "errors", "exact_integers", "exit_code", "failing_seed", "files", "folder",
        "kernels", "outputs", "passed", "peak_bytes", "process", "record", "reference", "repeats",
        "rtol", "run", "runtime", "seeds", "statistics", "tasks", "trace_hash", "traces", "wall",
    ]  # fmt: skip
    assert sorted(FULL.to_json()["errors"][0]) == [
        "exit_code",
        "fields",
        "message",
        "notes",
        "type",
    ]


def test_job_survives_json() -> None:
    job = Job(Path("/g"), Path("/k"), "one", only=("a", "b"), settings={"device": 1}, set_=("a=b",))
    assert Job.from_json(job.to_json()) == job


def test_activity_page_lists_running_kernels() -> None:
    with ActivityPage() as page:
        assert page.running() == []
        with mmap.mmap(page.descriptor, 4096) as child:
            struct.pack_into("<IIIi", child, 0, 0x41435450, 0, 2, 0)
            struct.pack_into("<QQiiQ", child, 128, 7, 41, 2, 25, 0)
            struct.pack_into("<QQiiQ", child, 192, 8, 42, 2, 3, 0)
            struct.pack_into("<Q", child, 128 + 32, 11)
        (kernel,) = page.running()
        assert kernel.signal == 11
        assert (kernel.task, kernel.func_id, kernel.core, kernel.sequence) == (41, 2, 25, 7)
        assert describe(kernel, {2: "spin"}, 24) == ("kernel 'spin' (func_id 2), task 41, on AIV 1")
        with mmap.mmap(page.descriptor, 4096) as child:
            struct.pack_into("<I", child, 16, 256)
        assert page.running()[0].task_name == "task 10 of ring 1"
    page.close()


def test_core_names() -> None:
    assert [core_name(core, 24) for core in (0, 23, 24, 71)] == [
        "AIC 0",
        "AIC 23",
        "AIV 0",
        "AIV 47",
    ]
    assert core_name(5, None) == "core 5"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    folder = tmp_path / "vector"
    (folder / "kernels").mkdir(parents=True)
    (folder / "golden.py").write_text("")
    (folder / "kernels" / "kernel_config.py").write_text("")
    return folder


def test_case_is_found(case) -> None:
    files = locate(case)
    assert files.folder == case
    assert locate(kernels=case / "kernels", golden=case / "golden.py") == files
    (case / "kernels" / "kernel_config.py").rename(case / "kernel_config.py")
    assert locate(case).kernel_config == case / "kernel_config.py"


def test_missing_parts_of_a_case_are_named(case) -> None:
    with pytest.raises(
        UsageError, match=r"case folder .*vectr does not exist; did you mean 'vector'"
    ):
        locate(case.parent / "vectr")
    with pytest.raises(UsageError, match="-g GOLDEN is missing"):
        locate(kernels=case / "kernels")
    with pytest.raises(UsageError, match="-k KERNELS is missing"):
        locate(golden=case / "golden.py")
    (case / "golden.py").rename(case / "goldn.py")
    with pytest.raises(UsageError, match=r"golden file .* did you mean 'goldn.py'"):
        locate(case)
    (case / "goldn.py").rename(case / "golden.py")
    (case / "kernels" / "kernel_config.py").unlink()
    with pytest.raises(UsageError, match="kernel configuration"):
        locate(case)
