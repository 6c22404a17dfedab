"""``pto graph``, ``why``, ``check`` and ``trace`` run a Python program, and observe its Workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pto_core.cli.main import main

PROGRAM = """
import sys

from pto_core import In, Out, Worker, task


@task
def smooth(x: In, out: Out):
    out[1:-1] = (x[:-2] + x[1:-1] + x[2:]) / 3


@task
def total(x: In):
    print("in a child")
    return float(x.sum())


class Box:
    def __init__(self, content):
        self.content = content


@task
def opened(box):
    return box.content


def overwrites(s, x, y):
    s.submit(smooth, x, y)
    s.submit(smooth, y, x)


if __name__ == "__main__":
    print(sys.argv[1:])
    worker = Worker(level=3, num_sub_workers=2)
    x, y = worker.shared_array(1000), worker.shared_array(1000)
    with worker.session() as s:
        overwrites(s, x, y)
        print(s.submit(opened, Box(s.submit(total, x))).result())
    if "more" in sys.argv:
        worker.run(lambda orch, args, config: orch.submit_sub(worker.register(print)))
        worker.replay(worker.capture(overwrites, (x, y)), (y, x))
    if "raw" in sys.argv:
        with worker.session(hazards="raw") as s:
            s.submit(smooth, x[:10], y[:10])
            s.submit(smooth, x[10:20], x[:10])
    if "close" in sys.argv:
        worker.close()
    if "fail" in sys.argv:
        raise ValueError("on purpose")
    if "exit" in sys.argv:
        sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def pto(folder: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command; return its standard output and its standard error."""
    command = [sys.executable, "-m", "pto_core.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_graph_writes_the_graph_of_a_program_as_python_runs_it(folder: Path) -> None:
    text, printed = pto(folder, "graph", "prog.py", "--format", "json", "--", "one", "--two")
    graph = json.loads(text)
    assert [task["kernel"] for task in graph["tasks"]] == ["smooth", "smooth", "total", "opened"]
    assert [(edge["first"], edge["second"]) for edge in graph["edges"]] == [(0, 1), (1, 2), (2, 3)]
    assert graph["edges"][2]["reasons"][0]["first"] == "result of total#2"
    assert graph["tasks"][0]["file"] == "prog.py"
    # a child may print later than its parent
    assert sorted(printed.splitlines()) == ["0.0", "['one', '--two']", "in a child"]
    pto(folder, "graph", "prog.py", "close", "--out", "graph.svg")
    assert (folder / "graph.svg").read_text().startswith("<svg")


def test_a_run_of_several_is_chosen_by_its_number(folder: Path) -> None:
    text, printed = pto(folder, "graph", "prog.py", "more", "--format", "json")
    assert len(json.loads(text)["tasks"]) == 4
    assert "this is run 1 of 3; choose another with --run N" in printed
    assert "run 1 on L3: 4 tasks, the first is smooth at prog.py:29" in printed
    text, _ = pto(folder, "graph", "prog.py", "more", "--run", "3", "--format", "json")
    assert len(json.loads(text)["tasks"]) == 2
    _, problem = pto(folder, "why", "prog.py", "1", "0", "more", "--run", "4", code=2)
    assert "there is no run 4" in problem


def test_why_explains_two_tasks_of_a_program(folder: Path) -> None:
    text, _ = pto(folder, "why", "prog.py", "smooth#1", "0")
    assert text.splitlines()[0] == "smooth#1 waits for smooth#0:"
    assert "overwrites memory 0 [OUTPUT], read before as memory 0 [INPUT]" in text
    text, _ = pto(folder, "why", "prog.py", "0", "1", code=1)
    assert "ask for them in the other order" in text


def test_check_reports_the_races_of_each_run(folder: Path) -> None:
    assert pto(folder, "check", "prog.py")[0] == "no races\n"
    text, _ = pto(folder, "check", "prog.py", "raw", code=1)
    assert text.count("\nno races\n") == 1
    assert text.count("run ") >= 2
    assert "smooth#0 and smooth#1 share 40 bytes of memory 0" in text
    assert "share" not in pto(folder, "check", "prog.py", "raw", "--hazards", "full")[0]


def test_trace_prints_and_writes_the_trace_of_each_worker(folder: Path) -> None:
    for number, arguments in enumerate((("close",), ()), 1):
        text, printed = pto(folder, "trace", "prog.py", *arguments, "--out", "traces")
        assert "Worker L3: 4 tasks" in text
        assert "in a child" in printed
        files = sorted(path.name for path in (folder / "traces" / str(number)).iterdir())
        assert files == ["prog.html", "prog.pftrace", "prog.trace.npz", "run.json"]
    assert "Worker L3: 4 tasks" in pto(folder, "trace", "summary", "traces")[0]
    assert "['--epochs', '3']" in pto(folder, "trace", "prog.py", "--", "--epochs", "3")[1]
    assert "prog.py -- --epochs 3" in " ".join(pto(folder, "trace", "--help")[0].split())


@pytest.mark.parametrize("command", ["graph", "trace"])
def test_the_error_of_a_program_is_that_of_the_command(folder: Path, command: str) -> None:
    text, problem = pto(folder, command, "prog.py", "fail", code=4)
    assert 'raise ValueError("on purpose")' in problem
    assert "pto_insight" not in problem
    assert "pto: error: prog.py raised ValueError" in problem.splitlines()
    assert ("Worker L3: 4 tasks" in text) == (command == "trace")


def test_no_output_of_a_child_is_lost_if_the_worker_was_not_closed(tmp_path: Path) -> None:
    (tmp_path / "open.py").write_text(
        "import os, sys, time\n"
        "from pto_core import Worker, task\n"
        "class Slow:\n"
        "    def flush(self): time.sleep(0.2), os.write(1, b'flushed')\n"
        "@task\n"
        "def prints(): sys.stdout = Slow()\n"
        "worker = Worker(level=3, num_sub_workers=1)\n"
        "worker.run(lambda s: s.submit(prints))\n"
    )
    command = [sys.executable, "open.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "flushed", "")


def test_the_annotations_of_a_program_are_objects(tmp_path: Path) -> None:
    (tmp_path / "local.py").write_text(
        "def made():\n"
        "    from pto_core import Out as Written, task\n"
        "    @task\n"
        "    def fill(out: Written): out[:] = 1\n"
        "    return fill\n"
        "from pto_core import Worker\n"
        "with Worker(level=3, num_sub_workers=1) as worker:\n"
        "    worker.run(lambda s: s.submit(made(), worker.shared_array(2)))\n"
    )
    text, _ = pto(tmp_path, "graph", "local.py", "--format", "json")
    assert len(json.loads(text)["tasks"]) == 1


def test_the_exit_code_of_a_program_is_reported(folder: Path) -> None:
    assert "prog.py exited with 3" in pto(folder, "check", "prog.py", "exit", code=4)[1]


@pytest.mark.parametrize(
    ("command", "text"), [("graph", "ran no task of a Worker or a device"), ("trace", "no Worker")]
)
def test_a_program_without_a_task_is_refused(tmp_path: Path, command: str, text: str) -> None:
    (tmp_path / "empty.py").write_text("print(1)")
    assert text in pto(tmp_path, command, "empty.py", code=2)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("graph", "prog.py", "-r", "pto2"), "--runtime is an option for a case"),
        (("check", "prog.py", "--measure"), "--measure is an option for a case"),
        (("graph", "case", "more"), "arguments are for a Python program"),
        (("why", "case", "1", "0", "--run", "2"), "arguments are for a Python program"),
        (("trace", "nothing"), "is no command; use pto trace summary FILE"),
        (("trace", "diff", "one"), "is no command; use pto trace summary FILE"),
        (("trace", "summary", "one", "--out", "x"), "--out and --trace-level are for a program"),
        (("graph", "missing.py"), "missing.py: No such file"),
    ],
)
def test_what_does_not_apply_is_refused(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert text in capsys.readouterr().err
