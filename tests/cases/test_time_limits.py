"""Time limits of cases: what did not return is named, and other devices still work.

Each limit is long enough to reach its place on a busy machine, so these tests mostly wait.
"""

from __future__ import annotations

import re
from pathlib import Path

FOREVER = "for (;;) usleep(1000);"
PYTHON_FOREVER = "while True: __import__('time').sleep(0.001)"
LIMIT_S = 8
"""The time limit of a case that must first reach a certain place, even on a busy machine."""


def test_time_limit_of_a_task(case) -> None:
    done = case.kernel(FOREVER).run("--set", "task_timeout_s=1")
    assert done.returncode == 4
    expected = "kernel 'twice' (func_id 3), task 0, on AIV [0-9]+ did not return within 1 s; check"
    assert re.search(expected.replace("(", r"\(").replace(")", r"\)"), done.stderr), done.stderr
    assert "device" not in done.stderr.partition("did not return")[2]
    case.assert_all_is_well()


def test_other_devices_work_after_a_lost_device(case) -> None:
    case.kernel(f"if (a[0] == 2.0f) {{ {FOREVER} }}")
    document = case.json("--all", "--set", "task_timeout_s=1")
    assert [(one["case"], one["exit_code"]) for one in document["cases"]] == [
        ("first", 4),
        ("second", 0),
    ]
    case.assert_all_is_well()


SLOW_IMPORT = f"""
import pathlib, sys, time

class Slow:
    def find_spec(name, *_):
        if name == "pto_core.cases.session":
            time.sleep({LIMIT_S + 1})
            pathlib.Path(__file__).with_name("slept").touch()

sys.meta_path.insert(0, Slow)
"""


def test_our_start_time_does_not_count_against_the_limit(case, tmp_path: Path) -> None:
    assert case.run("-q").returncode == 0
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    case.variables["PYTHONPATH"] = str(tmp_path)
    done = case.run("-q", "--timeout", str(LIMIT_S))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "slept").exists()


def test_time_limit_outside_a_kernel_names_the_place(uncompiled) -> None:
    case = uncompiled
    golden = (case.folder / "golden.py").read_text()
    case.write("golden.py", golden + f"    {PYTHON_FOREVER}\n")
    done = case.run("--timeout", str(LIMIT_S))
    assert done.returncode == 4
    line = (case.folder / "golden.py").read_text().count("\n")
    place = f"{case.folder}/golden.py:{line} in compute_golden"
    assert f"compute_golden did not return (it was at {place})" in done.stderr
    assert case.leftovers() == []


def test_time_limit_in_generate_inputs(uncompiled) -> None:
    case = uncompiled
    golden = (case.folder / "golden.py").read_text()
    case.write(
        "golden.py", golden.replace("    a = np.full", f"    {PYTHON_FOREVER}\n    a = np.full")
    )
    done = case.run("--timeout", str(LIMIT_S))
    assert done.returncode == 4
    assert "generate_inputs did not return (it was at " in done.stderr


def test_time_limit_in_an_import_that_raises_another_exception(uncompiled) -> None:
    """The case acts like an extension module that is interrupted during its initialisation."""
    case = uncompiled
    golden = (case.folder / "golden.py").read_text()
    ending = "raise ImportError('Encountered an error while initializing the extension.')"
    spin = f"try:\n    {PYTHON_FOREVER}\nexcept KeyboardInterrupt:\n    {ending} from None\n"
    case.write("golden.py", golden + spin)
    done = case.run("--timeout", str(LIMIT_S))
    assert done.returncode == 4
    assert "golden.py or kernel_config.py did not return" in done.stderr
    assert "ImportError" not in done.stderr
    assert "Traceback" not in done.stderr
    assert case.leftovers() == []


def test_time_limit_in_an_orchestration(case) -> None:
    graph = (case.folder / "kernels/host.cpp").read_text()
    spin = f"if (*reinterpret_cast<float*>(args[0]) == 5.0f) {{ {FOREVER} }}\n  const size_t"
    case.write("kernels/host.cpp", graph.replace("const size_t", spin, 1))
    # compile the orchestration first, because a build has a separate time limit
    assert case.run("-q").returncode == 0
    done = case.run("--case", "second", "--timeout", str(LIMIT_S))
    assert done.returncode == 4
    assert "the orchestration did not return; check it for an endless loop" in done.stderr
    assert case.leftovers() == []


def test_time_limit_in_a_python_orchestration(uncompiled) -> None:
    case = uncompiled
    case.write("kernels/python.py", f"def graph(rt, a, f, n):\n    {PYTHON_FOREVER}\n")
    done = case.run("--timeout", str(LIMIT_S))
    assert done.returncode == 4
    place = f"{case.folder}/kernels/python.py:"
    assert f"the orchestration did not return (it was at {place}" in done.stderr
    assert "in graph)" in done.stderr
