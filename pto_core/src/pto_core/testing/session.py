"""A device that a runtime variant is attached to, and the submit path of the variant's table."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import TracebackType

from pto_core.testing import abi
from pto_core.testing.graphs import Graph
from pto_core.testing.native import Outcome
from pto_core.testing.recording import RecorderLog
from pto_core.testing.subjects import RuntimeSubject


class Session:
    """Opens a device of the subject's backend, attaches the variant, loads the recorder kernels.

    ``options`` go to the backend. Leaving the context closes the device.
    """

    def __init__(self, subject: RuntimeSubject, device_id: int = 0, **options: object) -> None:
        self.subject = subject
        self.flags = subject.native.flags
        self.device = subject.backend.open(device_id, **options)
        table = subject.native.table
        self._submit, self._add_edge, self._publish = table.submit, table.add_edge, table.publish
        try:
            self.kernels = subject.backend.load_recorders(self.device)
            self.device.attach(subject.native)
        except BaseException:
            self.device.close()
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.device.close()

    def start(self, *, block_dim: int = 0, aicpu_thread_num: int = 3) -> None:
        """Start a run that :meth:`submit` adds to."""
        self.device.start(self.kernels, block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)

    def submit(self, func_id: int, arguments: Sequence[int], core_type: int = -1) -> int:
        """Submit one task; -1 when the run has an error."""
        words = (ctypes.c_uint64 * max(len(arguments), 1))(*arguments)
        task = abi.Task(func_id, core_type, len(arguments), 0, words, 0)
        return int(self._submit(self.device.runtime_handle, ctypes.byref(task)))

    def add_edge(self, producer: int, consumer: int) -> abi.Status:
        """Order two tasks."""
        return abi.Status(self._add_edge(self.device.runtime_handle, producer, consumer))

    def publish(self, task: int) -> abi.Status:
        """Let a task run, where the variant has ``publish``; elsewhere nothing is to be done."""
        if not self.flags & abi.RuntimeFlag.PUBLISH:
            return abi.Status.OK
        return abi.Status(self._publish(self.device.runtime_handle, task))

    def end(self, result: int = 0) -> Outcome:
        """Say that everything is submitted, wait, and finish."""
        self.device.orchestration_done(result)
        self.device.wait()
        return self.device.finish()

    def submit_graph(self, graph: Graph, log: RecorderLog) -> list[int]:
        """Submit, order and publish the tasks of ``graph``; give their ids."""
        producers: list[list[int]] = [[] for _ in range(graph.tasks)]
        for producer, consumer in graph.edges:
            producers[consumer].append(producer)
        words = (ctypes.c_uint64 * 4)(log.address, 0, 0, 0)
        task = abi.Task(0, -1, 4, 0, words)
        handle, reference, ids = self.device.runtime_handle, ctypes.byref(task), []
        for index in range(graph.tasks):
            words[1] = index
            task.func_id = int(index % 3 != 0)
            ids.append(self._submit(handle, reference))
            for producer in producers[index]:
                self._add_edge(handle, ids[producer], ids[index])
            self.publish(ids[index])
        return ids

    def run_graph(
        self, graph: Graph, log: RecorderLog, *, block_dim: int = 0, aicpu_thread_num: int = 3
    ) -> Outcome:
        """Run ``graph`` with the recorder kernel."""
        self.start(block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)
        self.submit_graph(graph, log)
        return self.end()
