"""The process of an agent that forks gateways."""

from __future__ import annotations

import os
import socket
import time

import psutil

from pto_core.remote.session_host import SessionHost, send_plan

WAIT_S = 30


def test_the_gateways_of_all_epochs_of_a_session_are_reaped() -> None:
    """The second epoch starts before the exit of the first gateway was noticed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = bytes(16)
    channels = [send_plan(ours, name, None) for _ in range(2)]  # an invalid plan: it exits at once
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
