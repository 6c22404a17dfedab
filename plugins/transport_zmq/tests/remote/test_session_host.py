"""The process of an agent that forks gateways."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from pto_core._worker import SharedMapping
from pto_transport_zmq.remote import agent, gateway
from pto_transport_zmq.remote.agent import SessionHost, send_plan
from pto_transport_zmq.remote.program_modules import write_modules

WAIT_S = 30


def test_the_gateways_of_all_epochs_of_a_session_are_reaped() -> None:
    """The second epoch starts before the exit of the first gateway is noticed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = bytes(16)
    # None is an invalid plan, so the gateway exits at once
    channels = [send_plan(ours, name, None) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        ours.close()
        SessionHost(theirs).run()
        os._exit(0)
    theirs.close()
    for channel in channels:
        channel.setblocking(True)
        while channel.recv(1 << 16):
            pass
        channel.close()
    until = time.monotonic() + WAIT_S
    while psutil.Process(pid).children() and time.monotonic() < until:
        time.sleep(0.02)
    assert psutil.Process(pid).children() == []
    ours.close()
    assert os.waitpid(pid, 0)[1] == 0


def test_only_an_address_in_use_starts_another_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A FileExistsError for the folder of the modules must not start another interpreter."""
    ours, theirs = socket.socketpair()
    commands: list[object] = []
    error = FileExistsError("a file of a module exists")

    def made(*_: object) -> None:
        raise error

    monkeypatch.setattr(agent, "Gateway", made)
    monkeypatch.setattr(os, "execv", lambda *command: commands.append(command))
    with pytest.raises(FileExistsError, match="a file of a module exists"):
        agent._made(None, ours, [], "", theirs.fileno(), 3)
    assert commands == []
    used = SharedMapping(4096)
    with pytest.raises(gateway.AddressInUseError, match="are in use in the gateway") as info:
        gateway._mapped_file(used.address, used.nbytes)
    error = info.value
    with pytest.raises(gateway.AddressInUseError):
        agent._made(None, ours, [], "", theirs.fileno(), 0)
    # the replaced execv returns, so the assertion behind it fails
    with pytest.raises(AssertionError):
        agent._made(None, ours, [], "", theirs.fileno(), 3)
    assert len(commands) == 1
    ours.close()
    theirs.close()


def test_the_modules_of_gateways_are_removed_when_the_serving_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(plan_file: int, agent: int, tries: int) -> NoReturn:
        os.lseek(plan_file, 0, os.SEEK_SET)
        with os.fdopen(plan_file, "rb") as opened:
            _, folder = pickle.load(opened)
        write_modules(folder, {"part.py": b""})
        os.write(agent, b"ready")
        while True:
            signal.pause()

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(agent, "serve_plan", serve)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = send_plan(ours, bytes(16), None)
    channel.setblocking(True)
    pid = os.fork()
    if pid == 0:
        ours.close()
        SessionHost(theirs).run()
        os._exit(0)
    theirs.close()
    assert channel.recv(16) == b"ready"
    assert len(list(tmp_path.iterdir())) == 1
    ours.close()
    assert os.waitpid(pid, 0)[1] == 0
    assert list(tmp_path.iterdir()) == []
    assert channel.recv(16) == b""  # end of file: the gateway has exited
    channel.close()
