"""The lease of a session: how long a cut may last, and when the session ends on each side.

The session must end for the gateway before the relay reports the end, even if the link delays,
loses or reorders messages. No clock is compared with the clock of the other host:

- Every head carries ``clock_ns``, the sender's clock, and ``echo_ns``, the newest clock that the
  sender has received from its peer.
- For the gateway, the session ends ``gateway_ns`` after the newest of its *own* clocks that the
  relay has echoed. The time at which a message arrives does not matter: a delayed message carries
  an old echo, and renews nothing.
- For the relay, the session ends ``relay_ns`` after it received the newest clock of the gateway.
  The gateway read that clock before the relay received it.

Let ``d`` be the bound on the drift of each clock: in ``t`` seconds a clock advances by at least
``t * (1 - d)`` and by at most ``t * (1 + d)``. For the gateway, the session ends at most
``gateway_ns / (1 - d)`` after it read the clock; then it needs at most ``ENDING_NS`` to end its
processes. The relay waits for at least ``relay_ns / (1 + d)``. So the rule holds if

    relay_ns >= (gateway_ns / (1 - d) + ENDING_NS) * (1 + d)

Both sides must use a clock that also advances while the machine is suspended:
``CLOCK_BOOTTIME`` on Linux.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from pto_core.errors import UsageError


def now_ns() -> int:
    """Return the time in nanoseconds, from an arbitrary origin."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


MILLISECOND: Final = 1_000_000
SECOND: Final = 1000 * MILLISECOND
DRIFT_PARTS: Final = 100
"""The bound on the drift of each clock: one part in this number, 1 %."""
ENDING_NS: Final = 500 * MILLISECOND
"""The time that a gateway needs to detect the end of its session and to end its processes."""
SHORTEST_NS: Final = 10 * MILLISECOND
LONGEST_NS: Final = 3600 * SECOND


@dataclass(frozen=True)
class Lease:
    """The times of a session, all in nanoseconds of the local clock."""

    duration_ns: int = 3 * SECOND
    """If a connection is cut and restored within this time, no message is lost."""

    def __post_init__(self) -> None:
        if not SHORTEST_NS <= self.duration_ns <= LONGEST_NS:
            raise UsageError(
                f"a lease of {self.duration_ns} ns is outside {SHORTEST_NS} to {LONGEST_NS} ns",
                name="lease",
                value=self.duration_ns,
                expected=f"{SHORTEST_NS} to {LONGEST_NS} ns",
            )

    @property
    def heartbeat_ns(self) -> int:
        """Each side sends a head at least this often in each channel."""
        return self.duration_ns // 10

    @property
    def gateway_ns(self) -> int:
        """For the gateway, the session ends this long after its newest clock that the relay echoed.

        At the start of a cut, the newest echo is up to two heartbeats and a round trip old. After
        the cut, the greeting and the first echo need three one-way trips. A third heartbeat covers
        all trips.
        """
        return self.duration_ns + 3 * self.heartbeat_ns

    @property
    def relay_ns(self) -> int:
        """For the relay, the session ends this long after the gateway's newest clock arrived."""
        parts = self.gateway_ns * DRIFT_PARTS + ENDING_NS * (DRIFT_PARTS - 1)
        return -(-parts * (DRIFT_PARTS + 1) // ((DRIFT_PARTS - 1) * DRIFT_PARTS))

    @property
    def silence_ns(self) -> int:
        """A session ends if the bulk channel is silent for this long.

        It is longer than the lease, because 32 chunks that wait in a slow link delay heartbeats.
        """
        return 10 * self.duration_ns
