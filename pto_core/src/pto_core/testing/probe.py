"""A runtime variant in Python that observes the backend which drives it.

It dispatches a fixed list of independent tasks, one at a time to each free core of the matching
type, and records all calls of the backend. After each dispatch it overwrites its own copy of the
payload, as the ABI allows. ``violations`` lists the calls of the backend that the ABI forbids.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pto_core.testing import abi
from pto_core.testing.native import Kernel

_SCRIBBLE = 0xA5
_SPARED_BYTES = ctypes.sizeof(abi.Payload) + 8 * 4
"""The size of the header and of the recorder's addresses, which the probe does not overwrite.
"""


@dataclass(frozen=True)
class Work:
    """A task for the probe. The kernel receives ``arguments``.

    An argument whose index is in ``relative`` is a byte offset into ``blob``, which follows the
    arguments in the payload.
    """

    task: int
    kernel: Kernel
    arguments: Sequence[int] = ()
    blob: bytes = b""
    relative: Sequence[int] = ()

    def payload(self) -> bytes:
        """Return the payload in the layout of the ABI."""
        start = ctypes.sizeof(abi.Payload) + 8 * len(self.arguments)
        scalars = [
            value + start if index in self.relative else value
            for index, value in enumerate(self.arguments)
        ]
        header = abi.Payload(
            kernel=self.kernel.address,
            task=self.task,
            func_id=self.kernel.func_id,
            num_args=len(scalars),
            relative_args=sum(1 << index for index in self.relative),
        )
        return bytes(header) + bytes((ctypes.c_uint64 * len(scalars))(*scalars)) + self.blob


@dataclass
class Journal:
    """The events of one run that the probe has recorded."""

    topology: abi.Topology | None = None
    dispatched: dict[int, int] = field(default_factory=dict)
    """The core of each dispatched task."""
    completed: list[tuple[int, int]] = field(default_factory=list)
    """Pairs (task, core), in the order in which the backend reported them."""
    violations: list[str] = field(default_factory=list)


class Probe:
    """A runtime variant for one device at a time; ``pointer`` is the address of its function table.

    A thread of the backend calls ``on_begin`` before the first task and ``on_finalise`` after the
    last one. Both receive the platform table.
    """

    def __init__(
        self,
        on_begin: Callable[[abi.Platform], None] | None = None,
        on_finalise: Callable[[abi.Platform], None] | None = None,
    ) -> None:
        self.journal = Journal()
        self._on_begin = on_begin
        self._on_finalise = on_finalise
        self._lock = threading.RLock()
        self._platform: abi.Platform | Any = None
        self._error = abi.Error()
        self._work: list[Work] = []
        self._queues: dict[abi.Core, deque[Work]] = {}
        self._in_flight: dict[int, int] = {}
        self._payloads: list[object] = []
        self._table = self._build_table()
        self.pointer = ctypes.pointer(self._table)
        self.artefacts: tuple[tuple[str, str], ...] = ()

    def load(self, work: Iterable[Work]) -> None:
        """Set the tasks of the next run."""
        self._work = list(work)

    def _build_table(self) -> abi.RuntimeApi:
        types: dict[str, Any] = {field[0]: field[1] for field in abi.RuntimeApi._fields_}
        refused: dict[str, Callable[..., int]] = {
            name: lambda *_: int(abi.Status.UNSUPPORTED)
            for name in ("orchestrate", "submit", "add_edge", "publish", "scope_begin", "scope_end")
        }
        entries: dict[str, Callable[..., Any]] = {
            **refused,
            "create": self._create,
            "destroy": lambda _handle: None,
            "begin": self._begin,
            "orchestration_done": lambda _handle, _result: None,
            "schedule_step": self._schedule_step,
            "stalled": self._stalled,
            "finalise": self._finalise,
            "end": lambda _handle: None,
            "abort": self._abort,
            "last_error": self._last_error,
            "statistics": lambda _handle, _out, _capacity: 0,
            "explain": lambda _handle, _out, _capacity: 0,
        }
        table = abi.RuntimeApi(
            abi.ABI_VERSION,
            ctypes.sizeof(abi.RuntimeApi),
            b"conformance_probe",
            abi.RuntimeFlag.HOST_ORCHESTRATION,
            abi.MAX_KERNEL_ARGS,
            0,
        )
        for name, function in entries.items():
            setattr(table, name, types[name](self._guarded(name, function)))
        return table

    def _last_error(self, _handle: int, out: Any) -> int:
        if out and self._error.status != abi.Status.OK:
            ctypes.memmove(out, ctypes.addressof(self._error), ctypes.sizeof(abi.Error))
        return int(self._error.status)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function``, wrapped to record its exceptions, because ctypes would drop them."""

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception:  # noqa: BLE001 - the callers are native and cannot handle it
                self.journal.violations.append(f"in {name}(): {traceback.format_exc()}")
                self._latch(abi.Status.INTERNAL)
                return abi.Step.ERROR if name == "schedule_step" else abi.Status.INTERNAL

        return call

    def _latch(self, status: abi.Status) -> None:
        if self._error.status == abi.Status.OK:
            self._error.status = status

    def _create(self, platform: Any, _options: Any, _count: int, handle: Any, _error: Any) -> int:
        self._platform = platform.contents
        handle[0] = 1
        return abi.Status.OK

    def _begin(self, _handle: int, _run: Any) -> int:
        self.journal = Journal(
            topology=abi.Topology.from_buffer_copy(self._platform.topology.contents)
        )
        self._error = abi.Error()
        self._in_flight = {}
        self._payloads = []
        self._queues = {core: deque() for core in abi.Core}
        for work in self._work:
            self._queues[work.kernel.core].append(work)
        if self._on_begin is not None:
            self._on_begin(self._platform)
        return abi.Status.OK

    def _schedule_step(self, _handle: int, thread: int) -> int:
        with self._lock:
            completions = self._collect(thread)
            if self._error.status != abi.Status.OK:
                return abi.Step.ERROR
            dispatched = self._hand_out(thread)
            if not self._in_flight and not any(self._queues.values()):
                if completions:
                    self._wake_others(thread)
                return abi.Step.DONE
            return abi.Step.PROGRESS if completions or dispatched else abi.Step.IDLE

    def _collect(self, thread: int) -> int:
        result = abi.PollResult()
        self._platform.poll(self._platform.self, thread, ctypes.byref(result))
        for core in result.faulted.cores():
            self._platform.fault(self._platform.self, core, ctypes.byref(self._error))
        done = result.done.cores()
        for core in done:
            task = self._in_flight.pop(core, None)
            if task is None:
                self.journal.violations.append(
                    f"poll({thread}) reported core {core}, which had no task"
                )
            else:
                self.journal.completed.append((task, core))
        return len(done)

    def _hand_out(self, thread: int) -> int:
        topology = self._platform.topology.contents
        chosen: list[tuple[int, Work]] = []
        for core in topology.thread_cores[thread].cores():
            queue = self._queues[abi.Core(topology.core_type[core])]
            if core not in self._in_flight and queue:
                work = queue.popleft()
                chosen.append((core, work))
                self._in_flight[core] = work.task
                self.journal.dispatched[work.task] = core
        if chosen:
            self._dispatch(thread, chosen)
        return len(chosen)

    def _dispatch(self, thread: int, chosen: list[tuple[int, Work]]) -> None:
        payloads = [ctypes.create_string_buffer(work.payload()) for _, work in chosen]
        batch = (abi.Dispatch * len(chosen))(
            *(
                abi.Dispatch(core, len(payload) - 1, ctypes.addressof(payload))
                for (core, _), payload in zip(chosen, payloads, strict=True)
            )
        )
        self._platform.dispatch(self._platform.self, thread, batch, len(chosen))
        for payload in payloads:
            surplus = len(payload) - 1 - _SPARED_BYTES
            if surplus > 0:
                ctypes.memset(ctypes.addressof(payload) + _SPARED_BYTES, _SCRIBBLE, surplus)
        self._payloads.extend(payloads)

    def _wake_others(self, thread: int) -> None:
        for other in range(self._platform.topology.contents.schedulers):
            if other != thread:
                self._platform.wake(self._platform.self, other)

    def _stalled(self, _handle: int) -> int:
        self.journal.violations.append(
            f"the backend reported a stall although cores {sorted(self._in_flight)} are busy "
            f"and {sum(map(len, self._queues.values()))} tasks wait"
        )
        self._latch(abi.Status.DEADLOCK)
        return abi.Step.ERROR

    def _finalise(self, _handle: int) -> int:
        if self._on_finalise is not None:
            self._on_finalise(self._platform)
        return abi.Status.OK

    def _abort(self, _handle: int, cause: Any) -> None:
        self._latch(abi.Status(cause.contents.status) if cause else abi.Status.ABORTED)
