"""The program and the tasks of a session use the same arrays."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait as wait_for
from typing import Any

import numpy as np
import pytest

from pto_core import In, InOut, Out, Scalar, Session, task
from pto_core.errors import HostAccessError, TaskFailedError, UsageError


@task
def double(x: In, out: Out) -> None:
    out[:] = 2 * x


@task
def double_later(x: In, out: Out, gate: Scalar) -> None:
    os.read(gate, 1)
    out[:] = 2 * x


@task
def read_later(x: In, gate: Scalar) -> None:
    os.read(gate, 1)


@task
def fail(out: Out) -> None:
    raise ValueError("no")


@task(retries=1)
def increment(x: InOut) -> None:
    x += 1


def run_checked(worker: Any, program: Callable[[Session], None]) -> None:
    with worker.session(hazards="check") as s:
        program(s)


def line_of(text: str) -> int:
    """Return the number of the line of this file that contains a text only as its comment."""
    with open(__file__) as lines:
        (found,) = [i for i, line in enumerate(lines, 1) if line.endswith(f"  # {text}\n")]
    return found


def after_wait(s: Session, *arrays: Any) -> threading.Event:
    """Wait for arrays in a thread that then sets the event."""
    over = threading.Event()

    def work() -> None:
        s.wait(*arrays)
        over.set()

    threading.Thread(target=work).start()
    return over


def test_wait_for_an_array_waits_for_the_tasks_that_use_it(make: Any, pipe: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, z = worker.array(np.ones(4)), worker.array(np.zeros(4)), worker.array(np.zeros(4))
    with worker.session() as s:
        s.submit(double_later, x, y, pipe[0])
        s.submit(double, y, y)
        s.wait(z)  # no task uses it
        waits = [after_wait(s, y), after_wait(s, z, x[:2])]
        assert not any(one.wait(0.05) for one in waits)
        os.write(pipe[1], b"1")
        assert all(one.wait(10) for one in waits)
        assert y.tolist() == [4, 4, 4, 4]
        part = s.empty(4, "float64")
        s.submit(double, y, part)
        s.wait(part)
        assert part.numpy().tolist() == [8, 8, 8, 8]


def test_wait_raises_a_failure_unless_it_is_handled(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.shared_array(4)
    with worker.session() as s:
        failed = s.submit(fail, x)
        failed_group = s.submit_group(fail, [[x[:2]]])
        failed_group.wait()
        assert isinstance(failed_group.exception(), ValueError)
        with pytest.raises(TaskFailedError, match="no"):
            s.wait(x)
        assert isinstance(failed.exception(), ValueError)
        s.wait(x)
        with pytest.raises(UsageError, match="argument 1 of wait"):
            s.wait(x, "x")
    with pytest.raises(UsageError, match="capture"):
        worker.capture(lambda s: s.wait(x))


def test_an_access_to_an_array_in_use_is_an_error_with_both_lines(make: Any, pipe: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, other = (worker.array(np.ones(4)) for _ in range(3))  # on one page

    def program(s: Session) -> None:
        handle = s.submit(double, x, y)
        other[:] = other + 1
        assert x.sum() == 4
        np.add(other, 1, out=other)
        handle.wait()
        x[:] = 3
        assert y.tolist() == [2, 2, 2, 2]
        s.submit(double_later, x, y, pipe[0])  # second submit
        os.write(pipe[1], b"1")
        y.sum()  # access
        pytest.fail("the access was permitted")

    with pytest.raises(HostAccessError) as error:
        run_checked(worker, program)
    assert (error.value.file, error.value.line) == (__file__, line_of("second submit"))
    assert (error.value.access_file, error.value.access_line) == (__file__, line_of("access"))
    assert "reads the float64 array of shape (4,), argument 1 [OUTPUT]" in str(error.value)
    y[:] = other
    assert other.tolist() == [3, 3, 3, 3]


def test_a_write_to_an_array_that_a_task_reads_is_an_error(make: Any, pipe: Any) -> None:
    worker = make(num_sub_workers=1)
    x = worker.array(np.ones(100_000))  # NumPy releases the interpreter lock

    def program(s: Session) -> None:
        s.submit(read_later, x, pipe[0])
        assert x.sum() == 100_000
        os.write(pipe[1], b"1")
        np.add(x, 1, out=x)  # a write at the end of the block

    with pytest.raises(HostAccessError, match=r"writes the float64 array .*read_later") as error:
        run_checked(worker, program)
    assert error.value.access_line == line_of("a write at the end of the block")
    x += 1


def test_the_program_has_waited_in_any_way(make: Any) -> None:
    worker = make(num_sub_workers=2)
    x, y, z = (worker.array(np.ones(4)) for _ in range(3))
    with worker.session(hazards="check") as s:
        s.submit(double, x, y)
        s.wait(y)
        x[:] = y
        s.submit(double, x, y)
        last = s.submit(double, y, z)
        assert last.result().tolist() == [8, 8, 8, 8]
        y[:] = x  # the first task runs before the last
        wait_for([s.submit(double, x, y)])
        y += x
        s.submit(increment, y)  # the driver copies it for the retry
        s.wait(y)
        assert y.tolist() == [7, 7, 7, 7]
        s.submit(double, x, y)
    assert y.tolist() == [4, 4, 4, 4]


def test_the_program_waits_for_a_task_that_has_ended(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.array(np.ones(4)), worker.array(np.zeros(4))
    with worker.session(hazards="check") as s:
        handle = s.submit(double, x, y)
        while not handle.has_ended:
            time.sleep(0.001)
        assert handle.result().tolist() == [2, 2, 2, 2]


def test_an_access_is_an_error_although_the_task_has_ended(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.array(np.ones(4)), worker.array(np.zeros(4))
    with worker.session(hazards="check") as s:
        first = s.submit(double, x, x)
        second = s.submit(double, y, y)
        second.result()
        while not first.has_ended:
            pass
        with pytest.raises(HostAccessError, match="double"):
            print(x)
        s.submit(double, x, y)
        with pytest.raises(HostAccessError, match="writes"):
            np.copyto(y, 0)


def test_an_access_in_another_thread_is_an_error(make: Any, pipe: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.array(np.ones(4)), worker.array(np.zeros(4))
    raised = []

    def work() -> None:
        try:
            y[:] = 1
            print(end="")
        except HostAccessError as error:
            raised.append(error)

    with worker.session(hazards="check") as s:
        s.submit(double_later, x, y, pipe[0])
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        os.write(pipe[1], b"1")
    assert len(raised) == 1
    assert "writes" in str(raised[0])


def test_faults_elsewhere_reach_the_earlier_handler() -> None:
    program = """
import ctypes, faulthandler
import numpy as np
from pto_core import In, Out, Worker, task

@task
def double(x: In, out: Out):
    out[:] = 2 * x

faulthandler.enable()
with Worker(level=3, num_sub_workers=1) as worker:
    x, y = worker.array(np.ones(4)), worker.array(np.ones(4))
    with worker.session(hazards="check") as s:
        s.submit(double, x, y).result()
        s.submit(double, x, y)
        print("before", flush=True)
        ctypes.string_at(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == -11
    assert done.stdout == "before\n"
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert 'File "<string>", line 17 in <module>' in done.stderr


def test_an_access_at_the_end_of_an_asynchronous_block_is_an_error(make: Any) -> None:
    worker = make(num_sub_workers=1)
    x, y = worker.array(np.ones(4)), worker.array(np.zeros(4))

    async def program() -> None:
        async with worker.session(hazards="check") as s:
            s.submit(double, x, y)
            x[:] = 2

    with pytest.raises(HostAccessError, match="writes"):
        asyncio.run(program())
    with worker.session(hazards="check") as s:
        assert s.submit(double, y, x).result() is x


PROFILED = """
import sys
from pto_core import Out, Worker, task
from pto_core.errors import HostAccessError

@task
def fill(out: Out):
    out[:] = 1

with Worker(level=3, num_sub_workers=1) as worker:
    out = worker.shared_array(8)
    try:
        with worker.session(hazards="check") as s:
            s.submit(fill, out)
            out[0] = 2
    except HostAccessError:
        print("reported")
calls = []
sys.setprofile(lambda frame, event, argument: calls.append(event))
print("called", flush=True)
"""


def test_a_program_can_be_profiled_after_an_error() -> None:
    profiled = [sys.executable, "-c", PROFILED]
    run = subprocess.run(profiled, capture_output=True, text=True, timeout=60, check=False)
    assert (run.stdout, run.returncode) == ("reported\ncalled\n", 0), run.stderr
