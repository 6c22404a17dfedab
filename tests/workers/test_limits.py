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


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_a_start_with_too_few_open_files_names_the_limit(start_method: str) -> None:
    found = output(f"""
        for extra in range(0, 60, 3):
            worker = Worker(3, num_sub_workers=2, start_method={start_method!r})
            handle = worker.register("builtins:id")
            limit = len(os.listdir("/proc/self/fd")) + extra
            message = limited(resource.RLIMIT_NOFILE, limit, lambda: worker.run(graph))
            worker.run(graph)
            worker.close()
            print(message)
            if message is None:
                break
        """)
    *refused, last = found.splitlines()
    assert last == "None"
    assert len(refused) > 1
    assert all("open files (ulimit -n)" in line for line in refused)


def test_a_start_with_too_few_processes_names_the_limit() -> None:
    found = output("""
        as_user()
        for extra in range(0, 20, 2):
            worker = Worker(3, num_sub_workers=2)
            handle = worker.register(nothing)
            limit = len(os.listdir("/proc/self/task")) + extra
            message = limited(resource.RLIMIT_NPROC, limit, lambda: worker.run(graph))
            worker.run(graph)
            worker.close()
            print(message)
            if message is None:
                break
        """)
    *refused, last = found.splitlines()
    assert last == "None"
    assert len(refused) > 1
    assert all("processes and threads (ulimit -u)" in line for line in refused)


def test_a_device_whose_threads_cannot_start_names_the_limit() -> None:
    found = output("""
        def opened(): return open_device("a2a3sim", runtime="host_build_graph")

        opened().close()
        as_user()
        print(limited(resource.RLIMIT_NPROC, 0, opened))
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
        opened().close()
        """)
    assert "the simulator cannot start a thread: Resource temporarily" in found
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
