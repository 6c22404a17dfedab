"""The launcher `command`: its hosts, its settings and its command line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pto_core.config import load_core
from pto_core.errors import CapacityError, UsageError
from pto_core.interfaces import AgentCommand, PlacedAgent
from pto_transport_zmq.launchers.builtin import CommandLauncher, command

AGENT = AgentCommand("k(y", "zmq")
# Prints its arguments as the key of an agent, and ends with its input.
ECHO = (
    """sh -c 'printf "pto agent: serving at tcp://0.0.0.0:77 with the key %s\\n" """
    """"$(echo "$*" | tr " " _)"; cat' {host} {host}:{command}"""
)
LIMIT_S = 30.0


@contextmanager
def opened(**settings: Any) -> Iterator[CommandLauncher]:
    launcher = command.open(AGENT, load_core({"host_command": ECHO, **settings}))
    try:
        yield launcher
    finally:
        launcher.close()


def test_the_command_has_the_host_and_the_command_of_the_agent_as_one_word() -> None:
    with opened(host_list="ann@host1, host2") as launcher:
        (placement,) = launcher.place(1, {})
        begin = time.monotonic()
        while not isinstance(agent := launcher.address(placement), PlacedAgent):
            assert time.monotonic() - begin < LIMIT_S
            time.sleep(0.01)
        assert str(placement) == "ann@host1"
        assert agent.address == "tcp://host1:77"
        assert agent.key == (
            "ann@host1:pto_agent_--set_remote_transport=zmq_serve_"
            "--bind=tcp://0.0.0.0:0_'--client=k(y'"
        )


def test_each_host_has_one_agent_and_a_lost_host_is_replaced_by_another_one() -> None:
    with opened(host_list="host1,host2,host3,host1") as launcher:
        first, second = launcher.place(2, {})
        assert [str(first), str(second)] == ["host1", "host2"]
        with pytest.raises(CapacityError) as caught:
            launcher.place(2, {})
        message = "host_list has too few hosts: 2 wanted; free: host3; in use: host1, host2"
        assert message in str(caught.value)
        assert (caught.value.value, caught.value.limit) == (2, 1)
        launcher.release(first)
        launcher.release(first)
        assert [str(one) for one in launcher.place(2, {})] == ["host3", "host1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "host_list is None, but the launcher 'command' needs the names of hosts"),
        ({"host_list": "host1,,host2"}, "host_list is 'host1,,host2'"),
        ({"host_list": "a", "host_command": "ssh {host}"}, "host_command is 'ssh {host}'"),
        ({"host_list": "a", "host_command": "ssh '{command}"}, "expected a command line"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught, opened(**settings):
        pass
    assert message in str(caught.value)
