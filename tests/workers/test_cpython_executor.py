"""Run CPython's own tests of executors and futures on the executor of a Worker.

They are in Debian's package libpython3.11-testsuite, and in `test` of some Python installations.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import unittest
from concurrent.futures import Executor
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from pto_core import Worker

pytestmark = pytest.mark.toolchain

NAME = "test.test_concurrent_futures"
PARTS = ("ExecutorTest", "AsCompletedTests", "WaitTests", "ExecutorShutdownTest")
NOT_APPLICABLE = {  # these import the class of the executor from concurrent.futures, in a process
    "test_hang_gh83386",
    "test_interpreter_shutdown",
    "test_submit_after_interpreter_shutdown",
}


class ExecutorOfWorker:
    """Makes executors of the Worker of a class of tests, with the arguments of a pool."""

    worker: ClassVar[Worker]

    def __new__(cls, max_workers: int = 2) -> Executor:  # type: ignore[misc]
        if max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        return cls.worker.executor()


def cpython_tests(monkeypatch) -> ModuleType:
    spec = importlib.util.find_spec(NAME)
    if spec is None:
        folder = Path("/usr/lib") / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "test"
        path = folder / "test_concurrent_futures.py"
        spec = importlib.util.spec_from_file_location(NAME, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, NAME, module)  # its functions are pickled by this name
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", PARTS)
def test_tests_of_cpython_pass(part, monkeypatch) -> None:
    module = cpython_tests(monkeypatch)
    members: dict[str, Any] = {"executor_type": ExecutorOfWorker, "worker_count": 2}
    members |= dict.fromkeys(NOT_APPLICABLE & set(vars(getattr(module, part))))
    bases = (module.ExecutorMixin, getattr(module, part), module.BaseTestCase)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(type(part, bases, members))
    text = io.StringIO()
    with Worker(level=3, num_sub_workers=2) as ExecutorOfWorker.worker:
        result = unittest.TextTestRunner(text).run(suite)
    assert result.wasSuccessful(), text.getvalue()
    assert result.testsRun >= 3
