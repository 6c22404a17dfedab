"""Folders with odd names, removed folders, full disks, other locales: right, or a clear error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import pto_core
from pto_core import Worker, kernel
from pto_core.errors import ConfigError, UsageError
from pto_core.output_files import replacing, write_text
from pto_insight.traces.files import write_trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "01_vector"
PTO = [sys.executable, "-m", "pto_core.cli"]
ODD = b"\xff\xc3 latin, tab\there, b#c$d'e, " + "π".encode()

# A name with bytes that XML, JSON and DOT do not permit as they are.
NAME = 'sum\x00\x01\x1b"<&>\\\udcff\ufffeπ'

PROGRAM = """
from pathlib import Path
import numpy as np
import pto_core
from pto_insight.traces.files import write_trace
from pto_core import InOut, TaskArgs, TensorArgType, Worker, kernel, task

@task
def add(x: InOut):
    x += 1

@kernel(core="aiv")
def increment(x: InOut):
    x += 1

def graph(rt, x):
    rt.publish(rt.add_task(increment, (x,)))

with pto_core.open_device("a2a3sim") as device:
    x = np.zeros(4)
    device.run(graph, x, trace=2)
    write_trace(device.last_trace, Path("trace"))
    found = device.graph(graph, x)
    for ending in ("svg", "json", "dot"):
        found.save(f"graph.{ending}")
    assert (x == 2).all()
with Worker(level=3, num_sub_workers=1) as worker:
    array = worker.shared_array(4, "int64")
    with worker.session() as session:
        session.submit(add, array)
    handle = worker.register(add)
    assert len(worker.graph(lambda orch, args, config: orch.submit_sub(handle))) == 1
    assert (array == 1).all()
"""


def run(
    *arguments: str | bytes | Path, folder: Path, **changes: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*PTO, *arguments],
        cwd=folder,
        env={**os.environ, **changes},
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder whose name has all kinds of odd characters."""
    made = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + ODD))
    made.mkdir()
    return made


def test_programs_run_in_a_folder_with_an_odd_name(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, folder / "program.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    ElementTree.parse(folder / "graph.svg")
    json.loads((folder / "graph.json").read_text("utf-8"))
    (folder / "graph.dot").read_text("utf-8")


def test_commands_work_in_a_folder_with_an_odd_name(folder: Path) -> None:
    shutil.copytree(EXAMPLE, folder / "case")
    for arguments in (
        ("run", "case", "--set", "cache_dir=cache"),
        ("run", folder / "case", "--trace", "--out", folder / "out"),
        ("graph", "case"),
        ("graph", folder / "case", "--out", folder / "graph.svg"),
        ("why", "case", "1", "0"),
        ("check", "--measure", "case"),
    ):
        done = run(*arguments, folder=folder)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
    ElementTree.parse(folder / "graph.svg")


def test_graphs_are_utf_8_under_every_locale(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    ascii_ = {**plain, "PYTHONUTF8": "0"}
    written = set()
    for changes in (plain, ascii_, {"PYTHONUTF8": "1"}):
        done = run("graph", EXAMPLE, "--out", "graph.svg", folder=tmp_path, **changes)
        assert done.returncode == 0, done.stderr
        written.add((tmp_path / "graph.svg").read_bytes())
    assert len(written) == 1
    for arguments in (("graph", EXAMPLE), ("config",), ("plugins",), ("doctor",)):
        assert run(*arguments, folder=tmp_path, **ascii_).returncode == 0


def test_names_with_control_characters_do_not_break_files(tmp_path: Path) -> None:
    @kernel(core="aiv", name=NAME)
    def named(x):
        x += 1

    def graph(rt, x):
        with pto_core.range(NAME):
            rt.publish(rt.add_task(named, (x,)))

    with pto_core.open_device("a2a3sim") as device:
        found = device.graph(graph, np.zeros(4))
        device.run(graph, np.zeros(4), trace=4)
        write_trace(device.last_trace, tmp_path / "trace")
    for ending in ("svg", "json", "dot"):
        found.save(tmp_path / f"graph.{ending}")
    ElementTree.parse(tmp_path / "graph.svg")
    assert NAME in (tmp_path / "graph.json").read_text("utf-8").encode().decode("unicode_escape")
    for name in ("graph.dot", "trace.html"):
        text = (tmp_path / name).read_text("utf-8")
        assert not [one for one in text if ord(one) < 32 and one not in "\n\t"]


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    with pytest.raises(OSError, match="kept"), replacing(path) as file:
        os.write(file.fileno(), b"half" + bytes(os.open(tmp_path / "none", os.O_RDONLY)))
    assert list(tmp_path.iterdir()) == []
    write_text(path, "whole")
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(bytes([1 // 0]))
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_pipe_or_a_device_is_written_directly() -> None:
    write_text(Path("/dev/null"), "text")
    with pytest.raises(OSError, match=r"No space left .*/dev/full"):
        write_text(Path("/dev/full"), "text")


def limited(number_of_bytes: int) -> Callable[[], None]:
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (number_of_bytes, number_of_bytes))


def test_a_limit_of_file_sizes_is_a_clear_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PTO, "graph", EXAMPLE, "--out", tmp_path / "graph.svg"],
        capture_output=True,
        check=False,
        timeout=120,
        preexec_fn=limited(100),
    )
    assert done.returncode != 0
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr
    assert b"File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_removed_working_folder_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir(os.getcwd()); os.execv({sys.executable!r}, {{}})"
    for arguments in (["config"], ["plugins"], ["run", str(EXAMPLE)]):
        gone.mkdir(exist_ok=True)
        text = program.format([sys.executable, "-P", "-m", "pto_core.cli", *arguments])
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=gone, capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 2
        assert b"the working folder of this process was removed; change to" in done.stderr


@pytest.mark.parametrize("number", [2**31, 2**32, 2**63, 2**64])
def test_a_device_number_that_no_device_has_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match=f"{number}.* from 0 to 2147483647"):
        pto_core.open_device(device=number)
    with pytest.raises(UsageError, match=f"device {number} is not a device number"):
        Worker(level=3, device_ids=[number])
