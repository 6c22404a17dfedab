"""Opening a device: invalid settings, warnings, logging, and the end of the process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

import pto_core
from pto_core import CallConfig, ChipCallable
from pto_core.errors import ConfigError, UsageError
from pto_core.kernels import OrchestrationSource


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_dim": 25}, r"block_dim is 25; use an integer from 0 to 24 \(argument\)"),
        (
            {"aicpu_thread_num": 5},
            r"aicpu_thread_num = 5 \(argument\): expected a whole number from 1 to 4",
        ),
    ],
)
def test_settings_that_no_device_accepts(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        pto_core.open_device("a2a3sim", settings=settings)
    assert caught.value.origin == "argument"


def test_more_blocks_than_the_device_has() -> None:
    with pytest.raises(UsageError, match="block_dim is 5, but this device has 4 blocks"):
        pto_core.open_device("a2a3sim", settings={"block_dim": 5, "sim.blocks": 4})


def test_a_run_with_too_many_blocks_is_refused_before_it_is_compiled() -> None:
    chip = ChipCallable(OrchestrationSource(Path("missing.cpp"), "missing"))
    with (
        pto_core.open_device("a2a3sim", settings={"sim.blocks": 4}) as device,
        pytest.raises(UsageError, match="block_dim is 5, but this device has 4 blocks"),
    ):
        device.run(chip, config=CallConfig(block_dim=5))


def test_an_unknown_variable_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTO_LOG_LEVLE", "debug")
    with pytest.warns(RuntimeWarning, match=r"PTO_LOG_LEVLE.*did you mean 'PTO_LOG_LEVEL'"):
        pto_core.open_device("a2a3sim").close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pto_core.open_device("a2a3sim").close()


def test_the_log_level_of_the_environment_applies() -> None:
    done = run_script("""
        import os
        os.environ["PTO_LOG_LEVEL"] = "info"
        import pto_core
        from pto_core import log
        log.get("before").info("not shown")
        with pto_core.open_device("a2a3sim"):
            log.get("after").info("shown")
    """)
    assert done.returncode == 0, done.stderr
    assert "after" in done.stderr
    assert "before" not in done.stderr


ENDS = {
    "open": "",
    "closed": "device.close()",
    "lost": "lose()",
    "lost and closed": "lose(); device.close()",
    "lost in a kernel that goes on at exit": "lose(); atexit.register(opened.set)",
    "running on another thread": (
        "threading.Thread(target=run, daemon=True).start(); entered.wait()"
    ),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_a_process_ends_in_every_state_of_its_device(runtime: str, end: str) -> None:
    script = """
        import atexit, sys, threading
        import pto_core

        entered, opened = threading.Event(), threading.Event()

        @pto_core.kernel(core="aiv")
        def wait():
            entered.set()
            while not opened.wait(0.01):
                pass

        def run(**limit):
            device.run(lambda rt: rt.publish(rt.add_task(wait, ())), **limit)

        def lose():
            try:
                run(timeout_s=2)  # so long that the kernel has begun
            except pto_core.errors.TaskTimeoutError:
                assert device.is_lost

        device = pto_core.open_device("a2a3sim", runtime=sys.argv[1])
        exec(sys.argv[2])
        print("reached the end")
    """
    done = run_script(script, runtime, ENDS[end])
    assert (done.returncode, done.stdout) == (0, "reached the end\n"), done.stderr
    assert "terminate" not in done.stderr


def test_a_device_whose_runtime_has_no_memory_is_closed() -> None:
    done = run_script("""
        import os, resource, time
        import pto_core

        def threads():
            return len(os.listdir("/proc/self/task"))

        def opened(entries):
            settings = {"sim.memory_bytes": 1 << 26, "pto2.tensor_map_pool": entries}
            return pto_core.open_device("a2a3sim", runtime="pto2", settings=settings)

        opened(16).close()
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 31), -1))
        before = threads()
        try:
            opened(1 << 28)
        except pto_core.errors.PtoError as error:
            print("pto2.tensor_map_pool" in str(error))
        until = time.monotonic() + 10
        while threads() > before and time.monotonic() < until:
            time.sleep(0.01)  # a joined thread is listed for a moment longer
        print(threads() - before)
    """)
    assert (done.returncode, done.stdout) == (0, "True\n0\n"), done.stderr


# Invariant: A process runs at most one runtime on each chip.
def test_a_chip_has_one_runtime_in_a_process() -> None:
    with pto_core.open_device("a2a3sim", runtime="host_build_graph", device=5) as device:
        with pytest.raises(UsageError, match="one runtime per chip") as caught:
            pto_core.open_device("sim", runtime="aicpu_build_graph", device=5)
        assert (caught.value.value, caught.value.expected) == (
            "aicpu_build_graph",
            "host_build_graph",
        )
        pto_core.open_device("a2a3sim", runtime="host_build_graph", device=5).close()
        pto_core.open_device("a2a3sim", runtime="aicpu_build_graph", device=6).close()
        assert device.is_open
    assert not device.is_open
    pto_core.open_device("a2a3sim", runtime="aicpu_build_graph", device=5).close()
