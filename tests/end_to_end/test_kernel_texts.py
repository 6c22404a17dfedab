"""Texts of kernels: ``pto_printf``, ``PTO_ASSERT`` and ``printf``, up to the crash of a kernel."""

from __future__ import annotations

import json
import re

import pto_core
from pto_core.errors import TaskFailedError

MODES = {"threads": (), "deterministic": ("--seed", "7")}
HEADER = '#include "pto/kernel/print.hpp"\n'
PRINTED = re.compile(r"pto: twice \(task 0, AIV \d+, device 0\), twice\.cpp:(\d+): (.*)")
# Only the case "first" fails or crashes, so one library serves several runs.
STATEMENT = """
pto_printf("a[0] = %g, n = %lld", a[0], static_cast<long long>(args[2]));
pto_printf("two\\nlines\\n");
PTO_ASSERT(args[2] == 64 && a != nullptr);
PTO_ASSERT(a[0] != 2, "in task %d", 0);
"""
CRASH = """
std::printf("plain, %g\\n", a[0]);
pto_printf("labelled");
if (a[0] == 2) *reinterpret_cast<volatile int*>(16) = 1;
"""


def with_texts(case, statement: str) -> list[str]:
    """Write a kernel that includes the header; return its lines."""
    source = case.kernel(statement).folder / "kernels" / "twice.cpp"
    source.write_text(HEADER + source.read_text())
    return source.read_text().splitlines()


def printed(texts: str) -> list[tuple[int, str]]:
    """Return line and text of each text, in order."""
    return [(int(line), text) for line, text in PRINTED.findall(texts)]


def line_of(lines: list[str], part: str) -> int:
    return next(number for number, line in enumerate(lines, 1) if part in line)


def test_a_failed_assertion_ends_the_run(case, runtime: str) -> None:
    lines = with_texts(case, STATEMENT)
    first, second = line_of(lines, "a[0] = %g"), line_of(lines, "two")
    failed = line_of(lines, "a[0] != 2")
    for name, mode in MODES.items():
        done = case.run("-r", runtime, *mode, "--case", "second")
        assert done.returncode == 0, done.stderr
        assert printed(done.stderr) == [
            (first, "a[0] = 5, n = 64"),
            (second, "two"),
            (second, "lines"),
        ]
        settings = {"cache_dir": case.cache, "sim.mode": name}
        (error,) = pto_core.run_case(case.folder, runtime=runtime, settings=settings).errors
        assert isinstance(error, TaskFailedError)
        assert (error.task, error.func_id, error.kernel, error.signal) == (0, 3, "twice", None)
        assert str(error) == (
            f"kernel twice (func_id 3) on AIV {error.core - 24}: the assertion at "
            f"twice.cpp:{failed} failed: a[0] != 2 (2 != 2): in task 0"
        )


def test_texts_before_a_crash_arrive(case) -> None:
    with_texts(case, CRASH)
    done = case.run("--set", "log_format=json")
    assert done.returncode == 4, done.stderr
    texts = [json.loads(line)["text"] for line in done.stderr.splitlines()]
    assert "plain, 2" in texts
    assert [text for _, text in printed("".join(f"pto: {text}\n" for text in texts))] == [
        "labelled"
    ]
    assert any("crashed: ended with SIGSEGV" in text for text in texts)


def test_the_lines_of_a_run_are_bounded(case) -> None:
    with_texts(case, 'for (int i = 0; i < 9\'998 + a[0]; ++i) pto_printf("%d", i);')
    limit = "pto: the kernels of this run have printed 10000 lines; further lines are not shown"
    for name, count in {"first": 0, "second": 1}.items():
        done = case.run("--case", name)
        assert done.returncode == 0, done.stderr
        assert [text for _, text in printed(done.stderr)] == list(map(str, range(10_000)))
        assert done.stderr.splitlines().count(limit) == count
