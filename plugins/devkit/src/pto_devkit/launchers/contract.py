"""The contract of launchers: the checks, and the test class.

Agents start and answer their client. They end when they are released or stopped, when their
launcher is closed, and when the process of the launcher is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pto_core.errors import LinkError
from pto_core.interfaces import PlacedAgent
from pto_devkit.checks import contract_test, expect
from pto_devkit.launchers.subject import Client, LauncherSubject, until
from pto_devkit.transports.processes import ForkedProcess, apart
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.remote.agent_messages import Stop

_UNKNOWN = "no_such_transport"


def check_agents_answer(subject: LauncherSubject) -> None:
    """Require that each placement is a separate agent, which answers the client."""

    def body() -> None:
        with subject.world() as world:
            placements = world.place(2)
            expect(len(set(placements)) == 2, "two placements are equal")
            agents = world.agents(placements)
            expect(len({agent.address for agent in agents}) == 2, "two agents have one address")
            expect(len({agent.key for agent in agents}) == 2, "two agents have the same key")
            for placement, agent in zip(placements, agents, strict=True):
                expect(str(placement).strip(), "str() of a placement is empty")
                world.client.expect_answer(agent)
                expect(world.address(placement) == agent, "the address of an agent has changed")

    apart(body)


def check_calls_return(subject: LauncherSubject) -> None:
    """Require that ``place``, ``address``, ``lost`` and ``release`` do not wait."""

    def body() -> None:
        with subject.world() as world:
            placements = world.place(2)
            world.release(placements[1])
            world.agents(placements[:1])
            world.release(placements[0])
            world.expect_quick_calls()

    apart(body)


def check_failed_start(subject: LauncherSubject) -> None:
    """Require that an agent that cannot start is lost, and that the reason has its error."""

    def body() -> None:
        with subject.world(transport=_UNKNOWN) as world:
            (placement,) = world.place(1)
            reason = world.reason_of_loss(placement)
            expect(_UNKNOWN in reason, f"the reason lacks the error of the agent: {reason}")
            world.release(placement)

    apart(body)


def check_release(subject: LauncherSubject) -> None:
    """Require that ``release`` ends one agent only, and that a second release does nothing."""

    def body() -> None:
        with subject.world() as world:
            first, second = world.place(2)
            agents = world.agents([first, second])
            world.release(first)
            world.client.expect_end(agents[0], "after release")
            world.release(first)
            world.client.expect_answer(agents[1])
            expect(world.lost(second) is None, "another agent was lost")

    apart(body)


def check_lost_agent(subject: LauncherSubject) -> None:
    """Require that an ended agent is reported as lost with a reason, and can be replaced."""

    def body() -> None:
        with subject.world() as world:
            first, second = world.place(2)
            agents = world.agents([first, second])
            with contextlib.suppress(LinkError):  # the agent may end before its answer arrives
                world.client.ask(agents[0], Stop())
            world.reason_of_loss(first)
            expect(world.lost(second) is None, "an agent that runs is reported as lost")
            world.release(first)
            (third,) = world.place(1)
            world.client.expect_answer(world.agents([third])[0])

    apart(body)


def check_close(subject: LauncherSubject) -> None:
    """Require that ``close`` ends all agents, and leaves no descriptor and no ended process."""

    def body() -> None:
        _place_and_close(subject)  # what a library keeps open does not count
        before = _descriptors()
        _place_and_close(subject)
        until(lambda: _descriptors() <= before, "a launcher leaves descriptors open: closing them")
        expect(not _has_zombie(), "a launcher has not collected the exit of a process")

    apart(body)


def _place_and_close(subject: LauncherSubject) -> None:
    with subject.world() as world:
        placements = world.place(2)
        agents = world.agents(placements)
        world.close()
        for agent in agents:
            world.client.expect_end(agent, "after close")


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _has_zombie() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def check_killed_owner(subject: LauncherSubject) -> None:
    """Require that all agents end when the process of their launcher is killed."""

    def body() -> None:
        reports, write = os.pipe()

        def own() -> None:
            world = subject.world()
            keys, agents = world.client.keys, world.agents(world.place(2))
            report = [(keys.public, keys.secret), *((one.address, one.key) for one in agents)]
            os.write(write, json.dumps(report).encode())
            time.sleep(3600)

        owner = ForkedProcess(own)
        os.close(write)
        try:
            report = os.read(reports, 65536)
            if not report:
                owner.join()
            keys, *found = json.loads(report)
            client = Client(subject.links(), KeyPair(*keys))
            agents = [PlacedAgent(*each) for each in found]
            for agent in agents:
                client.expect_answer(agent)
        finally:
            owner.discard()
        for agent in agents:
            client.expect_end(agent, "after the kill of the launcher's process")

    apart(body)


_NO_SETTINGS: Mapping[str, object] = MappingProxyType({})


class LauncherContract:
    """The contract of launchers. A subclass sets ``launcher`` to its name.

    The launcher must be able to place two agents at a time. ``settings``: the settings of the core
    that it needs for that. The tests use the link of the configuration, which must have keys.
    """

    launcher: ClassVar[str]
    settings: ClassVar[Mapping[str, object]] = _NO_SETTINGS
    subject: ClassVar[LauncherSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = LauncherSubject.load(cls.launcher, cls.settings)

    test_agents_answer = contract_test(check_agents_answer)
    test_calls_return = contract_test(check_calls_return)
    test_failed_start = contract_test(check_failed_start)
    test_release = contract_test(check_release)
    test_lost_agent = contract_test(check_lost_agent)
    test_close = contract_test(check_close)
    test_killed_owner = contract_test(check_killed_owner)
