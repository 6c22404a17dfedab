"""Agents that a command of this machine starts, such as ssh or the Python interpreter."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence

from pto_core.errors import UsageError
from pto_core.interfaces import Pending, PlacedAgent
from pto_core.worker.processes import close_parent_only, parent_only
from pto_transport_zmq.link.interface import split_address

# What an agent with --client prints when it listens.
_LINE = re.compile(rb"^pto agent: serving at (\S+) with the key (\S+)\r?\n", re.MULTILINE)
_OUTPUT_BYTES = 1 << 20  # the line is within the first bytes of the output
_REASON_BYTES = 2048
_KILL_S = 2.0  # seconds from the end of the input to the kill of the process


class AgentProcess:
    """The process of a command that runs an agent until the end of its standard input.

    Only this process holds the other end of that input, so the agent also ends when this process
    is killed. Children that Workers fork here close their copies. One thread uses the object. No
    method waits.

    ``name`` is the text of ``str()``. ``host``: the name under which this machine reaches the
    agent; None if the agent's own address is valid here. Raises UsageError if the command cannot be
    started.
    """

    def __init__(self, command: Sequence[str], name: str, host: str | None = None) -> None:
        self._name, self._host = name, host
        read, write = os.pipe()
        # The output goes to memory of this machine: a pipe that is not read would stop the agent.
        self._output: int | None = parent_only(os.memfd_create("pto-agent-output"))
        self._input: int | None = parent_only(write)
        self._kill_at = 0.0
        self._agent: PlacedAgent | None = None
        try:
            # In a session of its own: Ctrl-C of a terminal must not stop the agent.
            self._process = subprocess.Popen(
                command,
                stdin=read,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._close_input()
            self._close_output()
            raise UsageError(
                f"the agent {name} cannot be started: {command[0]}: {error.strerror}; check the "
                "command of the launcher",
                name="command",
                value=command[0],
            ) from error
        finally:
            os.close(read)

    def __str__(self) -> str:
        return self._name

    @property
    def agent(self) -> PlacedAgent | None:
        """The address and key of the agent; None until it has printed them."""
        found = None if self._agent else _LINE.search(self._text(0, _OUTPUT_BYTES))
        if found is not None:
            address, key = found[1].decode(), found[2].decode()
            if self._host is not None:
                address = f"tcp://{self._host}:{split_address(address)[1]}"
            self._agent = PlacedAgent(address, key)
        return self._agent

    def exit_reason(self) -> str | None:
        """Return why the process has exited, with its last output; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code == 0:
            how += ", as at the end of its standard input (check that it passes that to the agent)"
        size = 0 if self._output is None else os.fstat(self._output).st_size
        text = self._text(max(size - _REASON_BYTES, 0), _REASON_BYTES)
        output = text.decode(errors="replace").strip() or "nothing"
        return f"its command ended with {how}; its last output: {output}"

    def end(self) -> None:
        """Begin to end the agent; a second call does nothing."""
        if self._input is not None:
            self._close_input()
            self._kill_at = time.monotonic() + _KILL_S

    def is_over(self) -> bool:
        """Return whether the process has exited after :meth:`end`; kill it if it is late."""
        if self._process.poll() is not None:
            self._close_output()
            return True
        if time.monotonic() > self._kill_at:
            os.killpg(self._process.pid, signal.SIGKILL)
        return False

    def _text(self, begin: int, size: int) -> bytes:
        return b"" if self._output is None else os.pread(self._output, size, begin)

    def _close_input(self) -> None:
        if self._input is not None:
            close_parent_only(self._input)
            self._input = None

    def _close_output(self) -> None:
        if self._output is not None:
            close_parent_only(self._output)
            self._output = None


_STEP_S = 0.01


class ProcessLauncher:
    """All methods of a launcher but ``place``, which calls :meth:`start` for each agent.

    The placements are the :class:`AgentProcess` objects.
    """

    def __init__(self) -> None:
        self._placed: list[AgentProcess] = []
        self._ending: list[AgentProcess] = []

    @property
    def placed(self) -> Sequence[AgentProcess]:
        """The agents that were started and not released."""
        return tuple(self._placed)

    def start(self, command: Sequence[str], name: str, host: str | None = None) -> AgentProcess:
        """Start an agent; the arguments are those of :class:`AgentProcess`."""
        self._forget_ended()
        process = AgentProcess(command, name, host)
        self._placed.append(process)
        return process

    def address(self, placement: AgentProcess) -> PlacedAgent | Pending:
        """Return the address and key of an agent, or that it has not printed them yet."""
        self._forget_ended()
        waiting = f"the agent {placement} has not printed its address yet"
        return placement.agent or Pending(waiting)

    def lost(self, placement: AgentProcess) -> str | None:
        """Return why the process of an agent has exited; None while it runs."""
        self._forget_ended()
        return placement.exit_reason()

    def release(self, placement: AgentProcess) -> None:
        """Begin to end an agent. A later call, or :meth:`close`, kills it if it does not end."""
        if placement in self._placed:
            placement.end()
            self._placed.remove(placement)
            self._ending.append(placement)
        self._forget_ended()

    def close(self) -> None:
        """End all agents, and wait until their processes have exited."""
        for placement in self.placed:
            self.release(placement)
        while self._ending:
            time.sleep(_STEP_S)
            self._forget_ended()

    def _forget_ended(self) -> None:
        self._ending = [one for one in self._ending if not one.is_over()]
