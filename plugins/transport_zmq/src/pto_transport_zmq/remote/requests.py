"""Control requests and their replies between hosts, one typed message for each operation.

The operations are those that children answer between tasks (``worker/children/service.py``,
``worker/children/chip.py``). On the parent's host a request is an operation and its arguments.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Annotated, Any, get_args

import msgspec

from pto_core.errors import ProtocolError, UsageError
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker.failures import Failure
from pto_core.worker.handles import Delivery
from pto_transport_zmq.remote.callables import (
    CODE_BYTES_MAX,
    AnyDelivery,
    ChipSender,
    Digest,
    ImportedFunction,
    SerialisedFunction,
    to_local,
)
from pto_transport_zmq.remote.program_modules import USED_MAX, UsedModule
from pto_transport_zmq.remote.values import (
    FailureRecord,
    Name,
    Natural,
    Record,
    Value,
    decoder,
    encoded,
    failure_from_record,
    failure_to_record,
    from_value,
    load_known,
    packed_to_record,
    to_value,
)

DELIVERIES_MAX = 2
Token = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
REQUEST_BYTES_MAX = DELIVERIES_MAX * CODE_BYTES_MAX + 2**22
REPLY_BYTES_MAX = 2**24


class Request(Record, frozen=True, tag_field="operation"):
    """A request to a child. The fields of each operation are its arguments, in order."""

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return str(self.__struct_config__.tag)

    def arguments(
        self, folders: SourceFolders, imports: tuple[str, ...] | None = None
    ) -> tuple[Any, ...]:
        """Return the arguments in the form for the child; files are written to ``folders``.

        ``imports``: the modules that may define imported functions; None means every module.
        """
        return msgspec.structs.astuple(self)


class Configure(Request, frozen=True, tag="config"):
    """Assign a number to a packed :class:`CallConfig`."""

    number: Natural
    packed: Annotated[bytes, msgspec.Meta(max_length=4096)]


class Deliver(Request, frozen=True, tag="callable"):
    """Add a callable; the deliveries are tried in order."""

    digest: Digest
    deliveries: Annotated[list[AnyDelivery], msgspec.Meta(min_length=1, max_length=DELIVERIES_MAX)]

    def arguments(
        self, folders: SourceFolders, imports: tuple[str, ...] | None = None
    ) -> tuple[Any, ...]:
        """Return the arguments, with deliveries for this host; raises like ``to_local``."""
        return self.digest, [to_local(one, folders, imports) for one in self.deliveries]


class Forget(Request, frozen=True, tag="forget"):
    """Remove a callable."""

    digest: Digest


class Close(Request, frozen=True, tag="close"):
    """Exit when all tasks that were received before this request have ended."""


class CompareModules(Request, frozen=True, tag="modules"):
    """Compare modules with the modules of the other host. The gateway answers the request."""

    uses: Annotated[list[UsedModule], msgspec.Meta(max_length=USED_MAX)]


class BeginTrace(Request, frozen=True, tag="trace_begin"):
    """Trace the later tasks in a window of CLOCK_MONOTONIC of the receiver."""

    level: Annotated[int, msgspec.Meta(ge=1, le=4)]
    window: tuple[Natural, Natural]


class EndTrace(Request, frozen=True, tag="trace_end"):
    """End the trace; the reply is its size in bytes."""


class ReadTrace(Request, frozen=True, tag="trace_piece"):
    """Return the next bytes of the trace that was ended."""

    begin: Natural


class ReadClock(Request, frozen=True, tag="trace_clock"):
    """Return the time of CLOCK_MONOTONIC in nanoseconds."""


_Bytes = Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class BufferRequest(Request, frozen=True, tag_field="operation"):
    """A request about remote buffers, which the gateway answers itself."""

    def places(self) -> list[tuple[int, int]]:
        """Return address and bytes of each part of a live buffer that the request names."""
        return []


class AllocateBuffer(BufferRequest, frozen=True, tag="allocate_buffer"):
    """Allocate a zeroed buffer at an address of the reserved range."""

    address: Natural
    nbytes: _Bytes


class FreeBuffer(BufferRequest, frozen=True, tag="free_buffer"):
    """Free a buffer."""

    address: Natural


class _OfPart(BufferRequest, frozen=True, tag_field="operation"):
    """A request about one part of a live buffer."""

    address: Natural
    nbytes: Natural

    def places(self) -> list[tuple[int, int]]:
        """Return the part."""
        return [(self.address, self.nbytes)]


class WriteBuffer(_OfPart, frozen=True, tag="write_buffer"):
    """Confirm that the content of a part of a buffer has arrived in bulk messages."""


class ReadBuffer(_OfPart, frozen=True, tag="read_buffer"):
    """Send a part of a buffer in bulk messages, and then the reply."""


class CopyBuffer(BufferRequest, frozen=True, tag="copy_buffer"):
    """Copy between two parts of buffers on this host. The parts do not overlap."""

    target: Natural
    source: Natural
    nbytes: Natural

    def places(self) -> list[tuple[int, int]]:
        """See :class:`BufferRequest`."""
        return [(self.target, self.nbytes), (self.source, self.nbytes)]


class ReceiveBuffer(_OfPart, frozen=True, tag="receive_buffer"):
    """Listen for the content of a part of a buffer; the reply is the port.

    Only the host with the public key may send the content, and only with the token.
    """

    token: Token
    lease_ns: Natural
    key: Name | None


class SendBuffer(_OfPart, frozen=True, tag="send_buffer"):
    """Send a part of a buffer to the host at ``host``; reply when the transfer has ended."""

    token: Token
    lease_ns: Natural
    key: Name | None
    host: Name


class CancelReceive(BufferRequest, frozen=True, tag="cancel_receive"):
    """Cancel the copy with this token to this host. After the reply, the copy writes nothing."""

    token: Token


AnyRequest = (
    Configure
    | Deliver
    | Forget
    | Close
    | CompareModules
    | BeginTrace
    | EndTrace
    | ReadTrace
    | ReadClock
    | AllocateBuffer
    | FreeBuffer
    | WriteBuffer
    | ReadBuffer
    | CopyBuffer
    | ReceiveBuffer
    | SendBuffer
    | CancelReceive
)
BUFFER_REQUESTS = tuple(kind for kind in get_args(AnyRequest) if issubclass(kind, BufferRequest))
_REQUESTS: dict[str, type[Request]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyRequest)
}


def to_request(
    operation: str, arguments: tuple[Any, ...], chips: ChipSender | None = None
) -> Request:
    """Return the message of a request; raise UsageError if it cannot be sent to another host.

    ``chips`` reads the files of chip callables; it may raise CompileError. Without it, a chip
    callable is refused.
    """
    kind = _REQUESTS.get(operation)
    if kind is None:
        raise UsageError(
            f"the request {operation!r} cannot be sent to another host; use one of "
            f"{', '.join(_REQUESTS)}",
            name="operation",
            value=operation,
        )
    if kind is Deliver:
        digest, deliveries = arguments
        sent = (to_sent(one, chips) for one in deliveries)
        # All deliveries of a chip callable without functions are equal: send one.
        arguments = digest, [one for one, _ in itertools.groupby(sent)]
    try:
        request: Request = decode_request(encoded(kind(*arguments)))
    except (TypeError, ValueError, OverflowError, ProtocolError) as error:
        raise UsageError(
            f"the request {operation!r} cannot be sent to another host: {error}", name=operation
        ) from None
    return request


class RequestDone(Record, frozen=True, tag="done"):
    """The result of a request."""

    value: Value


class RequestFailed(Record, frozen=True, tag="failed"):
    """The failure of a request."""

    failure: FailureRecord


AnyReply = RequestDone | RequestFailed


def to_reply(result: object) -> RequestDone:
    """Return the reply with a result; raise UsageError if the result is not plain."""
    return RequestDone(to_value(result))


def to_refusal(failure: Failure) -> RequestFailed:
    """Return the reply with a failure."""
    return RequestFailed(failure_to_record(failure))


def relayed_reply(content: bytes) -> AnyReply:
    """Return the reply that a child on this host pickled; raise ProtocolError.

    Like ``packed_to_record``, it imports no code of the user.
    """
    try:
        is_done, value = load_known(content)
        return to_reply(value) if is_done else RequestFailed(packed_to_record(value))
    except (UsageError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise ProtocolError(f"a child sent an invalid reply: {error}") from None


def result_of(reply: AnyReply) -> tuple[bool, Any]:
    """Return (True, result) or (False, :class:`Failure`); raise ProtocolError."""
    if isinstance(reply, RequestDone):
        return True, from_value(reply.value)
    return False, failure_from_record(reply.failure)


def to_sent(delivery: Delivery, chips: ChipSender | None) -> AnyDelivery:
    """Return the form of a delivery for another host; raise UsageError."""
    if isinstance(delivery.content, str):
        return ImportedFunction(delivery.content, delivery.fingerprint)
    if delivery.way == "serialised":
        return SerialisedFunction(delivery.content)
    if chips is None:
        raise UsageError("a chip callable cannot be sent to a host without chips", name="target")
    return chips.to_portable(delivery.content)


decode_request = decoder(AnyRequest, "control request", REQUEST_BYTES_MAX)
decode_reply = decoder(AnyReply, "reply", REPLY_BYTES_MAX)
