"""The interface to Workers on other hosts, which a remote transport implements.

A remote transport is a plugin of the group ``pto.transports`` with a method ``child``. It owns
everything between hosts: agents, sessions, keys, buffers and copies of memory. For each child on
another host, the core starts a relay, a local process that it treats as any other child.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pto_core.errors import PtoError
from pto_core.interfaces import Plugin
from pto_core.plugins import find, load_record
from pto_core.worker.children import ChildContext, NestedWorker
from pto_core.worker.processes import ChildExit, ChildStart
from pto_core.worker.registry import Registration

if TYPE_CHECKING:
    from pto_transport_zmq.remote.worker_buffers import (
        RemoteBuffer as RemoteBuffer,
        RemoteTaskArgs as RemoteTaskArgs,
        RemoteTensorRef as RemoteTensorRef,
    )


class Placements(Protocol):
    """The launcher of the hosts of one template, in a process of its own."""

    def close(self) -> None:
        """End the launcher and all its agents; a second call does nothing."""


class Fence(Protocol):
    """Delays the report of the loss of a child while its work continues elsewhere.

    The process of a relay may exit while tasks that it passed on are still running on the other
    host. Until the fence is over, no task of the child runs again, and the child is not restarted.
    Only the thread that owns the fork lock calls it. No call may wait. An exception of
    :meth:`begin` is raised to the run. An exception of :meth:`is_over` is reported as the loss of
    the child, which is not restarted.
    """

    def begin(self, ended: ChildExit) -> None:
        """Start the fence, because the child's process has exited. Called once for each exit."""

    def is_over(self) -> bool:
        """Return whether no work of the child continues; called every 50 ms until it is true.

        The fence has its own time limit, after which this method returns true in any case.
        """


class RemoteChild(Protocol):
    """A child on another host. Each start of its relay continues the same session."""

    @property
    def fence(self) -> Fence:
        """Reports the end of the child's work that continues after the exit of its relay."""

    @property
    def placements(self) -> Placements | None:
        """The launcher that places the host; None for a host with an address."""

    @property
    def address(self) -> str:
        """The address of the agent of its host, which is placed."""

    @property
    def is_placing(self) -> bool:
        """Whether a launcher is placing its host. Any thread may ask."""

    def is_placed(self) -> bool:
        """Return whether the child has a host. Otherwise one is being placed.

        Does not wait. Raises ChildStartError if no host can be placed.
        """

    def agent_loss(self) -> str | None:
        """Return why the agent has ended, if its launcher has noticed that; otherwise None."""

    def release(self) -> None:
        """End the agent of a placed host; a second call, or one for another host, does nothing."""

    def body(
        self,
        context: ChildContext,
        registrations: Sequence[Registration],
        ranges: Sequence[tuple[int, int]],
        buffers: tuple[int, int],
        reason: int,
        digests: tuple[int, int, int],
        queue_bytes: int,
        window: int,
    ) -> Callable[[ChildStart], None]:
        """Return the body of the next relay.

        ``registrations``: the callables of the child. ``ranges``: address and bytes of each shared
        memory. ``buffers``: the first address and the bytes of the addresses for buffers.
        ``reason``: the address of ``reason_bytes`` of shared memory. ``digests``: the address of
        the table of digests, the number of this relay, and the number of relays. ``window``: the
        maximum number of tasks in flight. Raises UsageError for a Worker that cannot be sent.
        """

    def used_by(self, registration: Registration) -> Sequence[object]:
        """Return the modules that a callable uses, for the relay's request ``modules``."""

    def exit_error(self, ended: ChildExit) -> PtoError:
        """Return the error that explains the exit of a relay."""


@runtime_checkable
class RemoteTransport(Plugin, Protocol):
    """A transport to other hosts.

    Capabilities: ``encrypted``: messages are encrypted in transit. ``peer_keys``: each side proves
    that it has the secret of its public key before any of its messages is delivered.
    """

    @property
    def reason_bytes(self) -> int:
        """The size of the shared memory in which a relay explains its exit."""

    @property
    def digest_bytes(self) -> int:
        """The size of the table of digests that all relays of a Worker share."""

    def child(
        self, worker: NestedWorker, path: str, sibling: RemoteChild | None = None
    ) -> RemoteChild:
        """Return the child at ``path`` for a Worker of another host.

        ``sibling``: another child of the same template, whose launcher this child uses.
        """

    def buffers(self) -> Any:
        """Return the module of remote buffers: ``BufferTable``, and the names for programs."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a public name of remote buffers; raise PluginError if the plugin is missing."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(load_record(find("transport", "zmq")).buffers(), name)
