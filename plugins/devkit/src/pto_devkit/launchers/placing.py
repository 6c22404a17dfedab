"""Place agents, and reach them."""

from __future__ import annotations

from pto_devkit.failure import expect
from pto_devkit.launchers.subject import LauncherSubject
from pto_devkit.transports.processes import apart

_UNKNOWN = "no_such_transport"


def check_agents_answer(subject: LauncherSubject) -> None:
    """Require that each placement is an agent of its own, which answers the client."""

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
