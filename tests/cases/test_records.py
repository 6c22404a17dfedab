"""``pto record``, and ``pto run`` of its file elsewhere, after changes, and when it is damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pto_core.cases.golden import Inputs, ScalarArgument
from pto_core.cases.job import Job
from pto_core.cli.main import main
from pto_core.errors import UsageError
from pto_insight.graphs.archive import Archive, write_archive
from pto_insight.records import Rerun, RunRecord

GOLDEN = """
import ctypes
from pathlib import Path

import numpy as np
from count_of_case import COUNT

FACTOR = float((Path(__file__).parent / "factor.txt").read_text())


def generate_inputs(params):
    a = np.random.default_rng().random(COUNT, np.float32)
    arguments = [("a", a), ("out_f", np.zeros(COUNT, np.float32)), ("n", ctypes.c_int64(COUNT))]
    fixed = a.copy()
    fixed.flags.writeable = False
    return [*arguments, ("fixed", fixed), ("first", a[0])]


def compute_golden(tensors, params):
    assert np.array_equal(tensors["fixed"], tensors["a"])
    tensors["out_f"][:] = tensors["a"] * np.float32(FACTOR)
"""


def recorded(case, file: Path, *options: str) -> RunRecord:
    done = case.command("record", str(case.folder), "-o", str(file), *options)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"recorded {file}"), done.stderr
    return RunRecord.read(file)


def run_again(case, file: Path, *options: str) -> tuple[dict[str, Any], str]:
    """Run a record in an empty folder; return the report of its case, and the other output."""
    done = case.command("run", str(file), "--json", *options)
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode, done.stderr
    return document["cases"][0], done.stderr


def test_a_record_runs_elsewhere_with_its_files_inputs_and_settings(case, tmp_path: Path) -> None:
    case.write("golden.py", GOLDEN).write("lib/count_of_case.py", "COUNT = 64")
    case.write("factor.txt", "2").variables["PYTHONPATH"] = str(case.folder / "lib")
    source = case.kernel().write("shared/noise.hpp", "// of the case").folder / "kernels/twice.cpp"
    source.write_text('#include "../shared/noise.hpp"\n' + source.read_text())
    case.write("kernels/unused.hpp", "")
    options = ("--seed", "5", "--set", "sim.blocks=2")
    before = case.json(*options)["cases"][0]
    file = tmp_path / "run.ptorecord"
    record = recorded(case, file, *options)
    assert sorted(record.files) == [
        *("factor.txt", "golden.py", "kernels/aicpu.cpp", "kernels/host.cpp"),
        *("kernels/kernel_config.py", "kernels/twice.cpp", "lib/count_of_case.py"),
        "shared/noise.hpp",
    ]

    shutil.rmtree(case.folder)
    elsewhere = {"PTO_CACHE_DIR": tmp_path / "cache", "HOME": tmp_path, "PTO_SIM_SEED": 9}
    case.variables = {key: str(value) for key, value in elsewhere.items()}
    case.variables |= {"PTO_SIM_BLOCKS": "4", "PTO_BLOCK_DIM": "1"}
    report, printed = run_again(case, file)
    assert report["record"] == [
        "versions, settings and artefacts are those of the record",
        *(
            f"{name}: generate_inputs returns other values; the recorded ones are used"
            for name in ("a", "fixed", "first")
        ),
        "out_f: equal to the record byte for byte",
    ]
    assert "record: versions, settings and artefacts are" in printed
    assert (report["passed"], report["trace_hash"]) == (True, before["trace_hash"])
    refused = case.command("run", str(file), "--all")
    assert (refused.returncode, "omit --case, --all" in refused.stderr) == (2, True)


def test_changes_since_the_record_are_named(case, tmp_path: Path) -> None:
    file = tmp_path / "run.ptorecord"
    record = recorded(case, file)
    source = record.files["kernels/twice.cpp"].tobytes().replace(b"* 2;", b"* 2 + (i == 7);")
    replace(
        record,
        environment={**record.environment, "numpy": "0.9", "torch": "1.0"},
        settings={**record.settings, "sim.gone": ("1", "--set"), "sim.blocks": ("many", "--set")},
        build={**record.build, "compiler of kernels": "gcc 1.0"},
        files={**record.files, "kernels/twice.cpp": np.frombuffer(source, "u1")},
    ).write(file)
    report, _ = run_again(case, file)
    compiler = record.build["compiler of kernels"]
    artefact = report["record"].pop(4)
    assert artefact.startswith(f"artefact twice.cpp: {record.build['artefact twice.cpp']} in the ")
    assert report["record"] == [
        f"numpy: 0.9 in the record, {record.environment['numpy']} here",
        "torch: 1.0 in the record, none here",
        "sim.blocks: many in the record, 24 here",
        "sim.gone: 1 in the record, none here",
        f"compiler of kernels: gcc 1.0 in the record, {compiler} here",
        "f: largest difference from the record 1",
    ]
    assert report["exit_code"] == 1
    messages = [one["message"] for one in report["errors"]]
    assert messages[0].startswith("output 'f' is wrong in 1 of 64 elements; first at [7]: got 5.0")
    assert messages[1].startswith("output 'f' differs from the record in 1 of 64 elements")

    changed = np.nextafter(record.outputs["f"], np.float32(9))
    replace(record, outputs={"f": changed}).write(file)
    near, _ = run_again(case, file, "--seed", "6", "--set", "sim.blocks=3")
    assert near["passed"]
    assert near["record"] == [
        "sim.blocks: 24 in the record, 3 (--set) here",
        "f: largest difference from the record 4.76837e-07",
    ]
    assert near["trace_hash"] is not None


def test_a_run_that_fails_is_recorded(case, tmp_path: Path) -> None:
    case.kernel("__builtin_trap();")
    file = tmp_path / "run.ptorecord"
    done = case.command("record", str(case.folder), "-o", str(file))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (4, f"recorded {file}")
    record = RunRecord.read(file)
    assert (record.ending, record.outputs, sorted(record.inputs)) == (
        "its process died",
        {},
        ["a", "f"],
    )
    again = case.command("run", str(file))
    assert "record: the recorded run failed: its process died\n" in again.stderr
    assert (again.returncode, "SIGTRAP" in again.stderr or "SIGILL" in again.stderr) == (4, True)


def test_a_full_disk_and_programs_leave_no_record(case, tmp_path: Path) -> None:
    case.golden(4500).run()  # builds
    file = tmp_path / "run.ptorecord"
    limited = 'ulimit -f 100; exec "$@"'  # blocks of 512 bytes; the outputs are too much
    words = [*case.start_command("record", "--help").args[:1], "record", str(case.folder)]
    done = subprocess.run(
        ["sh", "-c", limited, "sh", *words, "-o", str(file)],
        env=case.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"the record {file} was not written: File too large; free" in done.stderr
    assert (done.returncode, list(tmp_path.glob("run*"))) == (2, [])


def test_files_that_cannot_be_recorded_read_or_written_are_refused_at_once(
    case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str | Path) -> str:
        assert main(list(map(str, words))) == 2
        return capsys.readouterr().err

    program = case.write("program.py", "").folder / "program.py"
    text = f"{program} cannot be recorded: pto does not know the inputs"
    assert text in refused("record", program)
    (earlier := tmp_path / "earlier.ptorecord").write_text("earlier")
    for name, text in {
        "earlier.ptorecord": "earlier.ptorecord exists; remove it, or name another file with -o",
        "run.npz": "run.npz does not end in .ptorecord; name it with -o",
        "no/run.ptorecord": "run.ptorecord does not exist; make it, or name another file with -o",
    }.items():
        assert text in refused("record", case.folder, "-o", tmp_path / name)
    assert earlier.read_text() == "earlier"
    for path in (tmp_path / "missing.ptorecord", tmp_path / "folder.ptorecord"):
        (tmp_path / "folder.ptorecord").mkdir(exist_ok=True)
        assert main(["run", str(path), "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"].startswith(f"the record {path} cannot be read or unpacked: ")


@pytest.mark.parametrize(
    "damage",
    ["cut", "flipped", "text", "foreign", "compressed", "outside", "slashes", "above", "newer"],
)
def test_a_file_that_is_no_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    file = tmp_path / "run.ptorecord"
    names = ("settings", "environment", "build", "layouts", "scalars", "inputs")
    nothing: dict[str, Any] = {name: {} for name in names}
    content = {**nothing, "case": "c", "golden": "golden.py", "kernel_config": "golden.py"}
    content |= {"root": "/r", "backend": "b", "runtime": "r", "seed": None, "skip_golden": False}
    files = {"golden.py": np.zeros(1 << 16, "u1")}
    record = RunRecord(**content, import_folders=[], ending="", outputs={}, files=files)
    record.write(file)
    assert RunRecord.read(file).golden == "golden.py"
    with pytest.raises(UsageError, match=r"generate_inputs returns {'n': 'scalar'} in this run"):
        Rerun(Job(file, file, recorded=file)).restored(Inputs((ScalarArgument("n", 1),), ()), "c")
    data = file.read_bytes()
    if damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        at = data.index(b'"case"')
        file.write_bytes(data[:at] + b'"cast"' + data[at + 6 :])
    elif damage == "text":
        file.write_text("not a record")
    elif damage == "foreign":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("../../evil.npy", "content")
    elif damage == "compressed":
        with zipfile.ZipFile(file) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    elif damage in ("outside", "slashes", "above"):
        evil = str(tmp_path / "evil.py")
        above = os.path.relpath(evil, f"{tempfile.gettempdir()}/x")
        name = {"outside": evil, "slashes": f"/{evil}", "above": above}[damage]
        replace(record, files={**files, name: np.zeros(9, "u1")}).write(file)
    else:
        plain = {"environment": {"ptorun-core": "9.8.7"}}
        write_archive(file, Archive("run record 2", plain, {}))
    assert main(["run", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    if damage == "newer":
        assert "version 2 of the format of records, written by ptorun-core 9.8.7" in error
    else:
        assert f"{file} is not a record of a run of this version, or it is damaged" in error
    assert not list(tmp_path.glob("**/evil*"))
