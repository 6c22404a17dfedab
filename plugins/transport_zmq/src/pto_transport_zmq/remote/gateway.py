"""The gateway: the process on the remote host between the session and the Worker.

It maps the shadow memory, forks the Worker's process, and only then opens sockets, because it is
unsafe to fork when a link has started threads. It owns the sockets and sends the heartbeats, so
user code that holds the interpreter lock cannot stop them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pto_core import _worker, plugins
from pto_core._worker import BellWatch, CallableKind, CallableSpace, ParentPort, SharedMapping
from pto_core.config import load_core
from pto_core.errors import CapacityError, PtoError
from pto_core.plugins import default_name
from pto_core.toolchain.source_folders import SourceFolders
from pto_core.worker import handles
from pto_core.worker.children import ChildContext, WorkerBody
from pto_core.worker.endpoints import Opener
from pto_core.worker.failures import Failure
from pto_core.worker.handles import Delivery, materialised
from pto_core.worker.processes import ChildPlan, ChildProcesses, ChildStart
from pto_core.worker.processes.starting import keep
from pto_core.worker.registry import Registration, Registry
from pto_core.worker.settings import worker_settings
from pto_core.worker.worker_node import WorkerNode
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.address_space import AddressSpace, Range, keep_freed_chunks
from pto_transport_zmq.remote.agent_messages import Open
from pto_transport_zmq.remote.blueprint import (
    Blueprint,
    CallableRecord,
    check_python,
    local_deliveries,
)
from pto_transport_zmq.remote.buffers import BufferGateway
from pto_transport_zmq.remote.frames import FrameGateway
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.memory import ShadowMemory
from pto_transport_zmq.remote.messages import MessageKind
from pto_transport_zmq.remote.peer_copies import PeerCopies, PeerLinks
from pto_transport_zmq.remote.program_modules import (
    UsedModule,
    check_used,
    top_levels,
    use_modules,
    write_modules,
)
from pto_transport_zmq.remote.requests import Deliver, Request
from pto_transport_zmq.remote.rights import Rights
from pto_transport_zmq.remote.session import (
    AcceptedSession,
    Identity,
    RemoteSession,
    SessionState,
    Side,
)
from pto_transport_zmq.remote.values import failure_to_bytes

_FRAME_BYTES = 128
_WAIT_S = 0.05  # the longest wait while frames are in the Worker
_GRACE_S = 0.2  # time for a Worker to exit after it was asked to close; must be below ENDING_NS
_MADV_REMOVE = 9
_MEMORY_CHECK_NS = 100_000_000
_BLOCK_BYTES = 512  # the unit of st_blocks


class AddressInUseError(FileExistsError):
    """An address of the parent's Worker is in use in this process."""


@dataclass(frozen=True)
class GatewayPlan:
    """A session to serve, as the agent has checked it.

    ``request``: the part of the client's request that its rights permit. ``bind``: the address to
    listen on, with port 0.
    """

    request: Open
    rights: Rights
    transport: str
    bind: str
    credentials: KeyPair | None
    insecure: bool

    @property
    def memory(self) -> int | None:
        """The maximum size of shadow memory in bytes; None means no limit."""
        return None if self.rights.memory is None else self.request.memory

    @property
    def buffer_memory(self) -> int | None:
        """The maximum size of all remote buffers in bytes; None means no limit."""
        return None if self.rights.memory is None else self.request.buffer_memory

    @property
    def tasks(self) -> int | None:
        """The maximum number of tasks in flight; None means no limit."""
        return None if self.rights.tasks is None else self.request.tasks

    def permitted_request(self, request: Request) -> Request:
        """Return the permitted part of a request; raise RightsError if there is none.

        Raises UsageError if the function's code is from another Python version.
        """
        if isinstance(request, Deliver):
            check_python(self.request.python, [request])
        return self.rights.permitted_request(request)


class Gateway:
    """One session on the remote host, from the fork of its process to its end.

    ``agent``: a socket to the agent. Its other end is closed when the agent has ended the session
    or has exited. It is inherited by all processes of the session, so the agent knows when the last
    process has exited. ``outputs``: pipes with the text that the processes print, one for each
    stream. ``folder``: the path of the folder for modules, which the caller removes.
    """

    def __init__(
        self, plan: GatewayPlan, agent: socket.socket, outputs: Sequence[int], folder: str
    ) -> None:
        request = plan.request
        self._plan = plan
        self._agent = agent
        self._outputs = {descriptor: OutputLines(descriptor) for descriptor in outputs}
        self._memory_check = 0  # the time of the next check of the memory
        self._shadow_files = [_mapped_file(*one) for one in request.ranges]
        self._buffer_file = _mapped_file(*request.buffers)
        space = AddressSpace.mapped(request.ranges)
        self._processes = ChildProcesses(timeout_s=request.start_timeout_s)
        self._port = self._start_worker(folder)
        keep_freed_chunks()
        self._watch = BellWatch(self._port.bell)
        plugin = load_links(plan.transport)
        allowed = [] if plan.credentials is None else [plan.rights.key]
        listener = plugin.listen(plan.bind, plan.credentials, allowed, insecure=plan.insecure)
        self.address = listener.address
        identity = Identity.of_this_process(request.core_version, request.lease_ns)
        self._session = RemoteSession(
            Side.GATEWAY, identity, request.session, request.epoch, now_ns()
        )
        self._end = AcceptedSession(plugin, listener, self._session)
        shadow = ShadowMemory(space, _release)
        buffers = AddressSpace.mapped([request.buffers])
        links = PeerLinks(plugin, plan.bind, plan.credentials, identity, plan.insecure)
        self._peers = PeerCopies(links, buffers)
        buffer_gateway = BufferGateway(
            buffers, _release, self._session, self._peers, plan.buffer_memory
        )
        self._frames = FrameGateway(
            self._port,
            shadow,
            self._session,
            buffer_gateway,
            plan.permitted_request,
            SourceFolders(load_core()["cache_dir"]),
            tasks=plan.tasks,
            imports=plan.rights.imports,
        )

    def _start_worker(self, folder: str) -> ParentPort:
        request = self._plan.request
        transport = plugins.load_transport(default_name("transport", "shm"))
        opener = Opener(transport, request.queue_bytes // _FRAME_BYTES, request.queue_bytes)
        table_bytes = -(-_worker.progress_table_bytes(1) // 4096) * 4096
        self._memory = SharedMapping(table_bytes + opener.memory_bytes)
        table = self._memory.address
        _worker.create_progress_table(table, 1, len(os.sched_getaffinity(0)))
        _worker.open_bell_descriptor(_worker.progress_table_parent_bell(table))
        connection = opener.connect(
            request.path,
            memory=(table + table_bytes, opener.memory_bytes),
            parent_bell=_worker.progress_table_parent_bell(table),
            child_bell=_worker.progress_table_child_bell(table, 0),
        )
        context = ChildContext(0, table, connection)
        modules = ProgramModules.written(folder, request.modules, request.uses)
        body = RemoteWorkerBody(
            context, request.blueprint, request.callables, modules, self._plan.rights
        )
        keep(
            (file, nbytes, address)
            for file, (address, nbytes) in zip(
                (*self._shadow_files, self._buffer_file),
                (*request.ranges, request.buffers),
                strict=True,
            )
        )
        self._processes.start([ChildPlan(request.path, body, passes_on=True)])
        opened = connection.open_parent()
        return ParentPort(opened.table, opened.end, table)

    def serve(self) -> None:
        """Serve the session until it is over and all of its other processes have exited."""
        session = self._session
        is_ready = False
        reason = "the session is over"
        try:
            while session.advance(now := now_ns()) < SessionState.ENDING:
                self._handle(now)
                if session.state is SessionState.OPEN and not is_ready:
                    is_ready = session.send(MessageKind.READY, [b""]) is not None
                self._watch.arm()  # from here on, a completion ends the wait
                self._frames.step(now)
                self._end.flush(now)
                self._pause()
        except Exception as error:  # noqa: BLE001 - the relay receives it
            reason = f"the gateway failed: {type(error).__name__}: {error}"
        self._finish(reason)

    def _handle(self, now: int) -> None:
        try:
            for message in self._end.receive(now):
                self._frames.handle(message)
            self._check_memory(now)
        except PtoError as error:
            self._session.close(str(error), now)

    def _check_memory(self, now: int) -> None:
        """Raise CapacityError if the shadow has more memory than the session declared."""
        limit = self._plan.memory
        if limit is None or now < self._memory_check:
            return
        self._memory_check = now + _MEMORY_CHECK_NS
        held = sum(os.fstat(file).st_blocks for file in self._shadow_files) * _BLOCK_BYTES
        if held > limit:
            raise CapacityError(
                f"the session has {held} bytes of shadow memory; it declared at most {limit}; use "
                "tasks with less memory, or a larger remote_memory_limit",
                name="memory",
                value=held,
                limit=limit,
            )

    def _pause(self) -> None:
        """Wait until there is something to do."""
        timeout_s = _WAIT_S
        if not self._frames.is_busy:
            deadline_ns = self._session.deadline_ns
            timeout_s = 1.0 if deadline_ns is None else max(deadline_ns - now_ns(), 0) / 1e9
        ends = self._peers.ends
        if self._frames.has_work:
            timeout_s = 0.0
        elif ends:
            timeout_s = min(timeout_s, _WAIT_S)
        process = self._processes[0]
        watched = [self._watch.descriptor, self._agent.fileno(), *self._outputs]
        pidfd = process.pidfd if process.is_alive else -1
        if pidfd >= 0:
            watched.append(pidfd)
        readable = self._end.wait(timeout_s, watched, ends)
        for descriptor in self._outputs.keys() & set(readable):
            self._forward(self._outputs[descriptor].read())
        if self._agent.fileno() in readable:
            self._session.close("the agent ended the session", now_ns())
        if pidfd in readable:
            for ended in self._processes.poll():
                self._lose(ended.died_error())

    def _lose(self, error: PtoError) -> None:
        """Report the exit of the Worker, after the answers that it has sent."""
        self._step_after_exit()
        for output in self._outputs.values():
            for text in output.read_all():
                self._forward(text)
        self._processes.kill_all()
        lost = failure_to_bytes(Failure.of(error))
        is_reported = False
        # The relay ends the session when it has read the report.
        while self._session.advance(now_ns()) < SessionState.ENDING:
            self._handle(now_ns())
            if not is_reported and self._step_after_exit():
                is_reported = self._session.send(MessageKind.LOST, [lost]) is not None
            self._end.flush(now_ns())
            self._end.wait(_WAIT_S, [])

    def _step_after_exit(self) -> bool:
        """Send answers of the Worker that has exited; return whether none is left."""
        with contextlib.suppress(PtoError):  # the exit can leave an invalid answer
            self._frames.step(now_ns())
            return not self._frames.has_answers
        return True

    def _forward(self, text: bytes) -> None:
        if text:
            self._session.send(MessageKind.OUTPUT, [text])  # the text is lost if there is no space

    def _finish(self, reason: str) -> None:
        """End the Worker, then confirm the end to the relay."""
        self._port.close()
        for process in self._processes:
            process.await_exit(_GRACE_S)
        self._processes.kill_all()
        now = now_ns()
        with contextlib.suppress(PtoError):
            self._session.close(reason, now)
            self._session.confirm_end(now)
            self._end.flush(now)
            self._peers.close(now)
        self._end.close()


def _mapped_file(address: int, nbytes: int) -> int:
    """Map an unnamed file at an address that the parent's Worker uses; return its descriptor.

    Raises AddressInUseError.
    """
    file = os.memfd_create("pto-shadow", os.MFD_CLOEXEC)
    os.ftruncate(file, nbytes)
    try:
        _mappings.append(SharedMapping.attach(file, nbytes, address))
    except FileExistsError as error:
        raise AddressInUseError(
            error.errno, f"{nbytes} bytes at {address:#x} are in use in the gateway"
        ) from error
    return file


_mappings: list[SharedMapping] = []  # kept until the process exits
_libc = ctypes.CDLL(None, use_errno=True)


def _release(place: Range) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    for mapping in _mappings:
        start = -(-max(place.start, mapping.address) // page) * page
        end = min(place.end, mapping.address + mapping.nbytes) // page * page
        if start < end:
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_REMOVE)


# ---- the Worker that a blueprint describes, and the body of its process ----


@dataclass(frozen=True)
class ProgramModules:
    """The modules that were sent, in ``folder``, and the modules to compare with this host's."""

    folder: str | None
    names: Sequence[str]
    uses: Sequence[UsedModule]

    @classmethod
    def written(
        cls, folder: str, sources: Mapping[str, bytes], uses: Sequence[UsedModule]
    ) -> ProgramModules:
        """Write the sources to a new folder, if there are any."""
        if sources:
            write_modules(folder, sources)
        return cls(folder if sources else None, top_levels(sources), uses)

    def prepare(self) -> None:
        """Make the sent modules importable and compare the others; raise UsageError."""
        if self.folder is not None:
            use_modules(self.folder, self.names)
        check_used(self.uses)


@dataclass(frozen=True)
class RemoteWorkerBody:
    """The body of the Worker's process. User code is imported here, never in the gateway."""

    context: ChildContext
    blueprint: Blueprint
    callables: Sequence[CallableRecord]
    modules: ProgramModules
    rights: Rights

    def __call__(self, start: ChildStart) -> None:
        """Build the Worker, and run it until the gateway asks it to close."""
        start.doing("building the Worker")
        self.modules.prepare()
        folders = SourceFolders(load_core()["cache_dir"])
        imports = self.rights.imports
        deliveries = {
            one.digest: tuple(local_deliveries(one, folders, imports)) for one in self.callables
        }
        context = replace(self.context, deliveries=deliveries)
        WorkerBody(context, worker_of(self.blueprint, folders, self.rights))(start)


def worker_of(blueprint: Blueprint, folders: SourceFolders, rights: Rights) -> WorkerNode:
    """Return the Worker, not started. Raises the errors of ``Worker`` and of its callables.

    Raises RightsError for a setting that the client may not choose, before it loads a callable.
    """
    given = blueprint.plain_settings
    settings = worker_settings(
        blueprint.level,
        given.pop("backend", None),
        given.pop("runtime", None),
        blueprint.device_ids,
        blueprint.sub_workers,
        "PROCESS",
        None,
        given,
    )
    rights.check_settings(settings.config)
    node = WorkerNode(settings, None)
    node.registry = _registry(blueprint, folders, rights.imports)
    for worker in blueprint.workers:
        node.add(worker_of(worker, folders, rights))
    return node


def _registry(
    blueprint: Blueprint, folders: SourceFolders, imports: tuple[str, ...] | None
) -> Registry:
    registry = Registry(blueprint.identity)
    for record in blueprint.callables:
        deliveries = local_deliveries(record, folders, imports)
        registration = _registration(registry, record, deliveries)
        registry.add(registration)
        registry.publish(registration)
    return registry


def _registration(
    registry: Registry, record: CallableRecord, deliveries: Sequence[Delivery]
) -> Registration:
    kind, space = CallableKind(record.kind), CallableSpace(record.space)
    handle = registry.live.make(record.digest, kind, space, record.name, record.registration)
    identity = handles.Identity(record.digest, kind, space, record.name, deliveries[-1])
    return Registration(handle, materialised(deliveries), identity)


# ---- the printed text of the session ----

LINE_BYTES_MAX = 1 << 16
_READ_BYTES = 1 << 16
_READS_MAX = 16  # enough for all text in a pipe, which holds 64 KiB by default


class OutputLines:
    """Reads one stream that the processes of a session write to. Each stream has its own pipe.

    A line longer than ``LINE_BYTES_MAX`` is returned in parts, each as a line.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._incomplete = b""

    def read(self) -> bytes:
        """Return the whole lines that have arrived since the last call, without waiting."""
        self._incomplete += self._arrived()
        end = self._incomplete.rfind(b"\n") + 1
        lines, self._incomplete = self._incomplete[:end], self._incomplete[end:]
        if len(self._incomplete) >= LINE_BYTES_MAX:
            return lines + self.rest()
        return lines

    def read_all(self) -> Iterator[bytes]:
        """Yield all text that has arrived; an incomplete last line counts as a line.

        It reads at most 1 MiB, because a process can print without a pause.
        """
        for _ in range(_READS_MAX):
            lines = self.read()
            if not lines:
                break
            yield lines
        if rest := self.rest():
            yield rest

    def rest(self) -> bytes:
        """Return the incomplete last line with a line end; empty if there is none."""
        rest, self._incomplete = self._incomplete, b""
        return rest + b"\n" if rest else b""

    def _arrived(self) -> bytes:
        try:
            return os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""
