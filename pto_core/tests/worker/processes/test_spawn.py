"""Children that are spawned instead of forked."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pto_core.errors import ChildStartError, UsageError
from pto_core.worker.memory import Budget, SharedArena
from pto_core.worker.memory.worker_memory import WorkerMemory
from pto_core.worker.processes import ChildPlan, ChildProcesses, starting


def run(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a separate process."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(program))
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)


PROGRAM = """
    import ctypes, os, signal, threading
    from dataclasses import dataclass
    from pathlib import Path
    from pto_core.errors import ChildStartError, UsageError
    from pto_core.worker.memory import Budget, SharedArena
    from pto_core.worker.memory.worker_memory import WorkerMemory
    from pto_core.worker.processes import ChildPlan, ChildProcesses

    @dataclass
    class Adding:
        address: int

        def __call__(self, start):
            seen = (ctypes.c_int64 * 3).from_address(self.address)
            seen[2] = seen[0] + seen[1]
            names = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]
            links = [os.readlink(name) for name in names if os.path.lexists(name)]
            start.ready((os.environ.get('OMP_NUM_THREADS'), sum('memfd' in one for one in links)))

    @dataclass
    class Parent:
        '''Starts a child of its own, and it another; each reports what the last found.'''

        start_methods: tuple
        body: Adding

        def __call__(self, start):
            processes = ChildProcesses()
            method, *more = self.start_methods
            below = Parent(more, self.body) if more else self.body
            plan = ChildPlan(start.path + '/below', below,
                             passes_on='spawn' in more, start_method=method)
            start.ready(processes.start([plan])[0])
            processes.end(0)

    def spawned(path, body, mappings=()):
        return ChildPlan(path, body, mappings, start_method='spawn')

    def failing(start):
        raise ValueError('not today')

    def waiting(start):
        start.ready(os.getpid())
        signal.pause()
"""


def test_memory_has_the_same_address_and_the_value_is_returned(tmp_path) -> None:
    done = run(
        PROGRAM
        + """
    if __name__ == '__main__':
        os.environ.pop('OMP_NUM_THREADS', None)
        arena = SharedArena(Budget(1 << 20))
        memory = WorkerMemory(progress_table_bytes=64, connection_bytes=[], arena=arena)
        array = arena.array(3, 'int64')
        array[:] = 4, 5, 0
        processes = ChildProcesses()
        body = Adding(array.ctypes.data)
        print(processes.start([spawned('L3/sub0', body, memory.mappings)]), array[2])
        processes.end()
        try:
            processes.start([spawned('L3/sub0', waiting), spawned('L3/sub1', failing)])
        except ChildStartError as error:
            print(error.path, repr(error.__cause__), len(processes))
        lock = threading.Lock()
        try:
            processes.start([spawned('L3/sub0', lambda start: lock)])
        except UsageError as error:
            print(error)
    """,
        tmp_path,
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "[('1', 0)] 9"
    assert lines[1] == "L3/sub1 ValueError('not today') 0"
    assert "L3/sub0 cannot be started with start_method='spawn'" in lines[2]
    assert "start_method='fork'" in lines[2]


@pytest.mark.parametrize(
    "start_methods", [("fork", "spawn"), ("fork", "fork", "spawn"), ("spawn", "fork", "spawn")]
)
def test_memory_of_the_top_is_mapped_however_the_levels_between_start(
    tmp_path, start_methods
) -> None:
    done = run(
        PROGRAM
        + f"""
    if __name__ == '__main__':
        os.environ.pop('OMP_NUM_THREADS', None)
        arena = SharedArena(Budget(1 << 20))
        memory = WorkerMemory(progress_table_bytes=64, connection_bytes=[], arena=arena)
        array = arena.array(3, 'int64')
        array[:] = 4, 5, 0
        first, *others = {start_methods!r}
        processes = ChildProcesses()
        body = Parent(others, Adding(array.ctypes.data))
        plan = ChildPlan('L5/pod0', body, memory.mappings, True, first)
        print(processes.start([plan]), array[2])
        processes.end()
    """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("[('1', 0)] 9\n", "")


def test_children_do_not_import_the_main_module(tmp_path) -> None:
    done = run(
        PROGRAM
        + """
    processes = ChildProcesses()
    (pid,) = processes.start([spawned('L3/sub0', waiting)])
    print(pid != os.getpid())
    processes.end(0)
    """,
        tmp_path,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_an_occupied_address_is_tried_again_and_then_reported(monkeypatch, tmp_path) -> None:
    """The address is used by the child's own program, so no attempt can succeed."""
    starts = []
    spawn = starting.spawnv_passfds

    def counting(*arguments) -> int:
        starts.append(arguments)
        return spawn(*arguments)

    monkeypatch.setattr(starting, "spawnv_passfds", counting)
    memory = WorkerMemory(
        progress_table_bytes=64, connection_bytes=[], arena=SharedArena(Budget(1 << 16))
    )

    class Elsewhere:
        """A mapping that would need nearly the whole address space."""

        descriptor = memory.mappings[0].descriptor
        nbytes = (1 << 47) - (3 << 12)
        address = 0x1000

    processes = ChildProcesses(timeout_s=60)
    with pytest.raises(ChildStartError, match="not free in the new process"):
        processes.start([ChildPlan("L3/sub0", print, (Elsewhere(),), start_method="spawn")])
    assert len(starts) == 3
    assert len(processes) == 0


def test_a_body_that_cannot_be_pickled_is_refused_at_the_call() -> None:
    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"start_method='spawn': .*lock"):
        ChildProcesses().start([ChildPlan("L3/sub0", lambda start: lock, start_method="spawn")])


def test_the_child_ends_with_its_parent(tmp_path, is_gone) -> None:
    done = run(
        PROGRAM
        + """
    if __name__ == '__main__':
        print(*ChildProcesses().start([spawned('L3/sub0', waiting)]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """,
        tmp_path,
    )
    assert is_gone(int(done.stdout))
    assert os.getpid() != int(done.stdout)
