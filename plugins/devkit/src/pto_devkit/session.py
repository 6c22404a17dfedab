"""A device with an attached runtime variant, whose function table receives the submits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from pto_devkit import abi
from pto_devkit.graphs import Graph
from pto_devkit.native import RecorderLog, RunOutcome
from pto_devkit.subjects import RuntimeSubject

_TASKS_PER_SCOPE = 500


class RuntimeSession:
    """A device with the attached variant and the loaded recorder kernels.

    ``options`` are passed to the backend. The end of the ``with`` block closes the device.
    """

    def __init__(self, subject: RuntimeSubject, device_id: int = 0, **options: object) -> None:
        self.subject = subject
        self.device = subject.backend.open(device_id, **options)
        try:
            self.kernels = subject.backend.load_recorders(self.device)
            subject.attach(self.device)
        except BaseException:
            self.device.close()
            raise
        table = self.device.runtime_table
        self.flags = abi.RuntimeFlag(table.capabilities)
        self._submit, self._add_edge, self._publish = table.submit, table.add_edge, table.publish

    def __enter__(self) -> RuntimeSession:
        return self

    def __exit__(self, *raised: object) -> None:
        self.device.close()

    def start(self, *, block_dim: int = 0, aicpu_thread_num: int = 3) -> None:
        """Start a run for the tasks that :meth:`submit` adds."""
        self.device.start(self.kernels, block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)

    def submit(self, func_id: int, arguments: Sequence[int], core_type: int = -1) -> int:
        """Submit one task. Return its id, or -1 if the run has an error."""
        if self.flags & abi.RuntimeFlag.TENSORS:
            return self.submit_tensors(func_id, (), arguments, core_type)
        scalars = (ctypes.c_uint64 * max(len(arguments), 1))(*arguments)
        task = abi.Task(func_id, core_type, len(arguments), 0, scalars, 0)
        return int(self._submit(self.device.runtime_handle, ctypes.byref(task)))

    def submit_tensors(
        self,
        func_id: int,
        tensors: Sequence[tuple[abi.Tag, abi.TensorData]],
        scalars: Sequence[int] = (),
        core_type: int = -1,
        cluster: int | None = None,
    ) -> int:
        """Submit a task, scalars before tensors; set the addresses of allocated tensors."""
        params = (abi.Param * max(len(scalars) + len(tensors), 1))()
        for param, scalar in zip(params, scalars, strict=False):
            param.tag = abi.Tag.SCALAR
            param.value.scalar = scalar
        for index, (tag, tensor) in enumerate(tensors, len(scalars)):
            params[index].tag = tag
            params[index].value.tensor = ctypes.pointer(tensor)
        task = abi.TensorTask(
            func_id=func_id, core_type=core_type, num_params=len(scalars) + len(tensors)
        )
        task.params = params
        if cluster is not None:
            task.clusters = (ctypes.c_int32 * 1)(cluster)
        table = self.device.runtime_table
        return int(table.submit_tensors(self.device.runtime_handle, ctypes.byref(task)))

    def add_edge(self, producer: int, consumer: int) -> abi.Status:
        """Add an edge between two tasks."""
        return abi.Status(self._add_edge(self.device.runtime_handle, producer, consumer))

    def publish(self, task: int) -> abi.Status:
        """Publish a task if the variant has the capability ``publish``; otherwise do nothing."""
        if not self.flags & abi.RuntimeFlag.PUBLISH:
            return abi.Status.OK
        return abi.Status(self._publish(self.device.runtime_handle, task))

    def end(self, result: int = 0) -> RunOutcome:
        """Announce that all tasks were submitted, wait for the end of the run, and finish it."""
        self.device.orchestration_done(result)
        self.device.wait()
        return self.device.finish()

    def submit_graph(self, graph: Graph, log: RecorderLog) -> list[int]:
        """Submit the tasks of ``graph``, add its edges, and publish the tasks. Return their ids."""
        producers: list[list[int]] = [[] for _ in range(graph.tasks)]
        for producer, consumer in graph.edges:
            producers[consumer].append(producer)
        if self.flags & abi.RuntimeFlag.TENSORS:
            return self._submit_keys(producers, log)
        scalars = (ctypes.c_uint64 * 4)(log.address, 0, 0, 0)
        task = abi.Task(0, -1, 4, 0, scalars)
        handle, reference, ids = self.device.runtime_handle, ctypes.byref(task), []
        for index in range(graph.tasks):
            scalars[1] = index
            task.func_id = int(index % 3 != 0)
            ids.append(self._submit(handle, reference))
            for producer in producers[index]:
                self._add_edge(handle, ids[producer], ids[index])
            self.publish(ids[index])
        return ids

    def _submit_keys(self, producers: list[list[int]], log: RecorderLog) -> list[int]:
        """Submit tasks, each of which writes its own key and reads the keys of its producers.

        A scope keeps the slots of its tasks in use, so each scope has only a few tasks.
        """
        keys = [key(log.address + index) for index in range(len(producers))]
        table, handle = self.device.runtime_table, self.device.runtime_handle
        scoped = bool(self.flags & abi.RuntimeFlag.SCOPES)
        ids = []
        for index, earlier in enumerate(producers):
            if scoped and index % _TASKS_PER_SCOPE == 0:
                if index > 0:
                    table.scope_end(handle)
                table.scope_begin(handle, None, -1)
            read = [(abi.Tag.INPUT, keys[producer]) for producer in earlier]
            tensors = [*read, (abi.Tag.OUTPUT_EXISTING, keys[index])]
            ids.append(self.submit_tensors(int(index % 3 != 0), tensors, log.arguments(index)))
        if scoped and producers:
            table.scope_end(handle)
        return ids

    def run_graph(
        self, graph: Graph, log: RecorderLog, *, block_dim: int = 0, aicpu_thread_num: int = 3
    ) -> RunOutcome:
        """Run ``graph``; each of its tasks runs the recorder kernel."""
        self.start(block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)
        self.submit_graph(graph, log)
        return self.end()


def key(address: int) -> abi.TensorData:
    """Return a tensor of size zero. It orders tasks by its address and covers no bytes."""
    return tensor(address, 0)


def tensor(address: int, elements: int, first: int = 0, of: int | None = None) -> abi.TensorData:
    """Return a view of ``elements`` bytes, from byte ``first`` on, of a buffer of ``of`` bytes."""
    whole = elements if of is None else of
    made = abi.TensorData(ndims=1, dtype=abi.DTYPE_UINT8, owner=-1, start_offset=first)
    made.buffer.addr, made.buffer.size = address, whole
    made.raw_shapes[0], made.shapes[0], made.offsets[0] = whole, elements, first
    return made
