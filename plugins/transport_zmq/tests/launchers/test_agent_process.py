"""Agents that are processes: their line, their output, and their end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pto_core.errors import UsageError
from pto_core.interfaces import PlacedAgent
from pto_transport_zmq.launchers import AgentProcess

LINE = "echo pto agent: serving at tcp://0.0.0.0:77 with the key 'k$y'"
UNTIL_END = "cat > /dev/null"
LIMIT_S = 30.0

Shell = Callable[..., AgentProcess]


@pytest.fixture
def shell() -> Iterator[Shell]:
    """Yield a function that runs a shell script as an agent; end all of them."""
    started = []

    def start(script: str, host: str | None = None) -> AgentProcess:
        started.append(AgentProcess(["sh", "-c", script], "host1", host))
        return started[-1]

    yield start
    for process in started:
        process.end()
    for process in started:
        wait_until(process.is_over)


def wait_until(is_true: Callable[[], object]) -> None:
    begin = time.monotonic()
    while not is_true():
        assert time.monotonic() - begin < LIMIT_S
        time.sleep(0.01)


def exit_reason(process: AgentProcess) -> str:
    wait_until(lambda: process.exit_reason() is not None)
    return str(process.exit_reason())


def test_the_line_is_found_after_other_output(shell: Shell) -> None:
    process = shell(f"echo 'pto agent: serving at a banner'; {LINE}; {UNTIL_END}")
    wait_until(lambda: process.agent)
    assert process.agent == PlacedAgent("tcp://0.0.0.0:77", "k$y")
    assert process.exit_reason() is None
    assert str(process) == "host1"


def test_the_address_has_the_name_under_which_the_host_is_reached(shell: Shell) -> None:
    process = shell(f"{LINE}; {UNTIL_END}", "far.example")
    wait_until(lambda: process.agent)
    assert process.agent == PlacedAgent("tcp://far.example:77", "k$y")


def test_an_incomplete_line_is_not_used(shell: Shell) -> None:
    process = shell("printf 'pto agent: serving at tcp://a:1 with the key half'")
    exit_reason(process)
    assert process.agent is None


def test_an_exit_is_reported_with_the_last_output(shell: Shell) -> None:
    process = shell("echo first; echo no route to host >&2; exit 3")
    assert exit_reason(process) == (
        "its command ended with exit code 3; its last output: first\nno route to host"
    )
    assert exit_reason(shell("kill -9 $$")).endswith(
        "with signal SIGKILL; its last output: nothing"
    )


def test_an_agent_without_the_standard_input_says_so(shell: Shell) -> None:
    process = shell(f"{LINE}; exec </dev/null; {UNTIL_END}")
    assert "with exit code 0, as at the end of its standard input (check" in exit_reason(process)


def test_much_output_neither_blocks_the_agent_nor_fills_the_reason(shell: Shell) -> None:
    process = shell(f"{LINE}; head -c 4000000 /dev/zero | tr '\\0' x; echo; echo last; exit 1")
    reason = exit_reason(process)
    assert reason.endswith("x\nlast")
    assert len(reason) < 3000
    assert process.agent is not None


def test_an_agent_that_does_not_end_is_killed_with_its_processes(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    process = AgentProcess(["sh", "-c", f"sleep 600 & echo $! > {file}; sleep 600"], "host1")
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    below = psutil.Process(int(file.read_text()))
    process.end()
    assert not process.is_over()
    wait_until(process.is_over)
    assert "SIGKILL" in exit_reason(process)
    wait_until(lambda: not below.is_running() or below.status() == psutil.STATUS_ZOMBIE)


def test_a_terminal_does_not_interrupt_agents(shell: Shell) -> None:
    process = shell("cut -d ' ' -f 6 /proc/$$/stat; exit 1")
    assert exit_reason(process).split()[-1] != str(os.getsid(0))


def test_a_command_that_does_not_exist_is_refused() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="host1 cannot be started: no-such-command: No such file"):
        AgentProcess(["no-such-command"], "host1")
    assert len(os.listdir("/proc/self/fd")) == before
