"""Ctrl-C at random instants of every phase: the run exits with 130 and leaves nothing."""

from __future__ import annotations

import itertools
import os
import random
import secrets
import selectors
import signal
import subprocess
from collections.abc import Callable

import pytest

INSTANTS = 3
INSTANTS_FULL = 20
# Every phase lasts much longer than this, so that the signal arrives during the phase.
LATEST_S = 0.4
# Code that does not return is killed after 2 s; the rest of the time is for a slow machine.
END_S = 60

SOURCES = 4
HERE = 'std::puts("here");'
HERE_ONCE = f"static bool begun; if (!__atomic_exchange_n(&begun, true, 0)) {HERE}"
SPIN = "for (volatile int i = 0; i < 500'000; i = i + 1) {}"
# A delay for each task. Without it, the runtime accepts all of its tens of millions of tasks within
# seconds; with it, that takes minutes.
BREATH = "for (volatile int i = 0; i < 1'000; i = i + 1) {}"
TASKS = 100_000
# Arrays of 4 MiB, which are copied repeatedly.
COPIED_COUNT = 1 << 20
COPIES = 100_000


def compiling(case, random_: random.Random) -> None:
    """Compile kernels that are in no cache, each of which takes some time."""
    ids = range(SOURCES)
    for func_id in ids:
        case.slow_to_compile(f"slow{func_id}.cpp", random_.getrandbits(60))
    listed = "{'func_id': i + 4, 'source': f'slow{i}.cpp', 'core_type': 'aiv'}"
    case.config(f"KERNELS += [{listed} for i in {list(ids)}]\n")


def building(case, random_: random.Random) -> None:
    """Add tasks until the runtime accepts no more."""
    case.graph("host_build_graph", f"{HERE}\n  while (add()) {BREATH}")


def building_while_running(case, random_: random.Random) -> None:
    """Add tasks while the schedulers run, until the runtime accepts no more."""
    case.graph("aicpu_build_graph", f"{HERE}\n  while (add()) {BREATH}")
    case.config("RUNTIME_CONFIG = {'runtime': 'aicpu_build_graph'}\n")


def running(case, random_: random.Random) -> None:
    """Run very many tasks of about one millisecond each."""
    case.kernel(f"{HERE_ONCE}\n  {SPIN}")
    case.graph("host_build_graph", f"for (int i = 0; i < {TASKS}; ++i) add();")


def copying_in(case, random_: random.Random) -> None:
    """Copy a large array to the device many times."""
    copy = "api.copy_to_device(a, reinterpret_cast<void*>(args[0]), bytes)"
    case.golden(COPIED_COUNT)
    case.graph(
        "host_build_graph",
        f"{HERE}\n  for (int i = 0; i < {COPIES}; ++i) if ({copy} != 0) return 1;",
    )


def copying_out(case, random_: random.Random) -> None:
    """Copy a large array back many times, after the last task has completed."""
    case.golden(COPIED_COUNT).kernel(HERE)
    case.graph("host_build_graph", f"for (int i = 0; i < {COPIES}; ++i) copy_back();")


Maker = Callable[..., None]
# The functions that create a phase are used in turn.
PHASES: dict[str, tuple[Maker, ...]] = {
    "compile": (compiling,),
    "build": (building, building_while_running),
    "run": (running,),
    "copy": (copying_out, copying_in),
}


def wait_for_the_phase(case, phase: str, run) -> None:
    """Wait until a compiler runs, or until the phase itself has reported its begin."""
    if phase == "compile":
        while not any("cc1plus" in line for line in case.processes()):
            assert run.poll() is None, run.communicate()
        return
    run.await_text("here\n")


def interrupt_after(run: subprocess.Popen[str], after_s: float) -> None:
    """Wait for some time, require that the command still runs, and interrupt it like a terminal."""
    with selectors.DefaultSelector() as selector:
        descriptor = os.pidfd_open(run.pid)
        selector.register(descriptor, selectors.EVENT_READ)
        over = selector.select(after_s)
        os.close(descriptor)
    assert not over, ("the phase was over before the instant", after_s, run.communicate())
    os.killpg(run.pid, signal.SIGINT)


@pytest.mark.parametrize("phase", PHASES)
def test_interrupt_at_random_instants(case, request, phase: str) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    random_ = random.Random(seed)
    instants = INSTANTS_FULL if request.config.getoption("--full") else INSTANTS
    for _, make in zip(range(instants), itertools.cycle(PHASES[phase]), strict=False):
        make(case.config().kernel().golden(64), random_)
        after_s = random_.uniform(0, LATEST_S)
        run = case.start()
        wait_for_the_phase(case, phase, run)
        interrupt_after(run, after_s)
        output, errors = run.communicate(timeout=END_S)
        assert run.returncode == 130, (after_s, errors)
        assert output == ""
        assert "Traceback" not in errors
        assert case.leftovers() == []
    case.assert_all_is_well()
