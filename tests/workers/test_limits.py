"""Limits of the system: a call that reaches one names it and leaves the Worker usable.

The limits hold for a process with all its threads, so each test is a program in its own process.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

START = """
import ctypes, os, resource, signal
from pto_core import Worker, open_device
from pto_core.errors import CapacityError, ChildStartError

def nothing(): pass

def graph(orch, args, config): orch.submit_sub(handle)

def limited(kind, limit, call):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, before[1]))
    try:
        call()
        return None
    except (CapacityError, ChildStartError) as error:
        return str(error)
    finally:
        resource.setrlimit(kind, before)

def raise_limit(kind, used, step, **settings):  # prints each refusal, until a Worker starts
    global handle
    for extra in range(0, 60, step):
        worker = Worker(3, num_sub_workers=2, **settings)
        handle = worker.register("builtins:id")
        message = limited(kind, len(os.listdir(used)) + extra, lambda: worker.run(graph))
        worker.run(graph)
        worker.close()
        print(message)
        if message is None:
            break

def as_user():  # root has no limit of processes; the files of this checkout may be root's
    if os.getuid() == 0:
        os.setresuid(54321, 54321, 0)
        ctypes.CDLL(None).setfsuid(0)
"""


def output(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Invariant: After a failed creation of a thread, no run is open and no signal is blocked.
def test_a_run_whose_thread_cannot_start_leaves_the_worker_usable() -> None:
    found = output("""
        worker = Worker(3, num_sub_workers=1)
        handle = worker.register(nothing)
        worker.init()
        as_user()
        for call in (lambda: worker.run(graph), worker.session().__enter__):
            print(limited(resource.RLIMIT_NPROC, 0, call))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
        worker.run(graph)
        worker.close()
        """)
    for line in found.splitlines():
        assert "the thread of a Worker cannot be started: Resource temporarily" in line
        assert "may have 0 processes and threads (ulimit -u)" in line
    assert len(found.splitlines()) == 2


def refusals(program: str) -> list[str]:
    """Return the messages of a program that ends with ``raise_limit``."""
    *refused, last = output(program).splitlines()
    assert last == "None"
    assert len(refused) > 1
    return refused


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_start_with_too_few_open_files_names_the_limit(start_method: str) -> None:
    settings = f"start_method={start_method!r}"
    found = refusals(f"raise_limit(resource.RLIMIT_NOFILE, '/proc/self/fd', 3, {settings})")
    assert all("open files (ulimit -n)" in line for line in found)


def test_a_start_with_too_few_processes_names_the_limit() -> None:
    found = refusals("""
        as_user()
        raise_limit(resource.RLIMIT_NPROC, "/proc/self/task", 2)
        """)
    assert all("processes and threads (ulimit -u)" in line for line in found)


def test_a_device_whose_threads_cannot_start_names_the_limit() -> None:
    found = output("""
        def opened(): return open_device("a2a3sim", runtime="host_build_graph")

        opened().close()
        as_user()
        print(limited(resource.RLIMIT_NPROC, 0, opened))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
        opened().close()
        """)
    assert "the backend cannot start a thread: Resource temporarily" in found
    assert "(ulimit -u)" in found


def test_a_progress_display_whose_thread_cannot_start_names_the_limit() -> None:
    found = output("""
        worker = Worker(3, num_sub_workers=1)
        handle = worker.register(nothing)
        worker.run(graph)
        as_user()
        session = worker.session(progress=print)
        print(limited(resource.RLIMIT_NPROC, 0, session.__enter__))
        worker.run(graph)
        worker.close()
        """)
    assert "the thread 'pto progress'" in found
    assert "(ulimit -u)" in found
