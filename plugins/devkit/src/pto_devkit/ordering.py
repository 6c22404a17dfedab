"""Check a runtime on graphs of many shapes: every task runs once, and every edge is respected."""

from __future__ import annotations

import ctypes
import re
import time
from dataclasses import replace

from pto_devkit import abi, graphs
from pto_devkit.checks import ContractError, expect, random_numbers
from pto_devkit.graphs import Graph
from pto_devkit.native import RUN_LIMIT_S, RecorderLog, RunOutcome, entries, sum_of_values
from pto_devkit.session import RuntimeSession, tensor
from pto_devkit.subjects import RuntimeSubject

MANY_TASKS = 131_072
"""The number of tasks that every variant must accept in one run."""

CAPABILITY_FLAGS = {
    "explicit_edges": abi.RuntimeFlag.EXPLICIT_EDGES,
    "publish": abi.RuntimeFlag.PUBLISH,
    "scopes": abi.RuntimeFlag.SCOPES,
    "host_orchestration": abi.RuntimeFlag.HOST_ORCHESTRATION,
}
"""For each capability that a plugin may claim, the flag in its library's table."""

_STATISTIC_NAME = re.compile(r"[a-z][a-z0-9_]*")
_STATISTICS = 64


def run_and_verify(
    session: RuntimeSession, graph: Graph, *, block_dim: int = 0, aicpu_thread_num: int = 3
) -> RunOutcome:
    """Run ``graph`` and check the recorded order against its edges."""
    log = RecorderLog(session.device, graph.tasks)
    outcome = session.run_graph(graph, log, block_dim=block_dim, aicpu_thread_num=aicpu_thread_num)
    expect(
        outcome.status == abi.Status.OK,
        f"{graph.name}: the run ended with {outcome.status.name}: {outcome.message}",
    )
    graph.verify(log.read())
    expect(
        outcome.report.tasks == graph.tasks,
        f"{graph.name}: the report counts {outcome.report.tasks} of {graph.tasks} tasks",
    )
    log.free()
    return outcome


def check_graph(runtime: RuntimeSubject, graph: Graph) -> None:
    """Require that every task of ``graph`` runs once, after all tasks with an edge to it."""
    with RuntimeSession(runtime) as session:
        run_and_verify(session, graph)


def check_random_graphs(runtime: RuntimeSubject, count: int = 20, seed: int | None = None) -> None:
    """Require that random graphs run correctly (:func:`check_graph`), all of them on one device."""
    with random_numbers(seed) as numbers, RuntimeSession(runtime) as session:
        for _ in range(count):
            run_and_verify(session, graphs.random_graph(numbers, numbers.randrange(1, 300)))


def check_every_shape(runtime: RuntimeSubject, seed: int | None = None) -> None:
    """Require that a graph runs correctly with every ``block_dim`` and ``aicpu_thread_num``."""
    with random_numbers(seed) as numbers, RuntimeSession(runtime) as session:
        graph = graphs.random_graph(numbers, 60)
        for block_dim in range(session.device.shape.blocks + 1):
            for threads in range(1, abi.MAX_AICPU_THREADS + 1):
                shaped = replace(graph, name=f"{graph.name} on {block_dim} x {threads}")
                run_and_verify(session, shaped, block_dim=block_dim, aicpu_thread_num=threads)


def check_core_types(runtime: RuntimeSubject) -> None:
    """Require that a task runs on a core of its kernel's type, and that the report agrees."""
    tasks, aic_tasks = 90, 30
    with RuntimeSession(runtime) as session:
        blocks = session.device.shape.blocks
        outcome = run_and_verify(session, graphs.independent(tasks))
        used = [usage.tasks for usage in outcome.report.cores]
        expect(
            (sum(used[:blocks]), sum(used[blocks : 3 * blocks])) == (aic_tasks, tasks - aic_tasks),
            f"{aic_tasks} AIC and {tasks - aic_tasks} AIV tasks on {blocks} blocks: the AIC cores "
            f"ran {used[:blocks]}, the AIV cores {used[blocks : 3 * blocks]}",
        )


def check_arguments(runtime: RuntimeSubject, seed: int | None = None) -> None:
    """Require that a kernel receives exactly the submitted values, up to ``max_args`` of them."""
    most = runtime.native.table.max_args
    expect(16 <= most <= abi.MAX_KERNEL_ARGS, f"max_args is {most}, not 16 to 64")
    if runtime.native.flags & abi.RuntimeFlag.TENSORS:
        most = min(most, abi.MAX_TASK_SCALARS)
    with random_numbers(seed) as numbers, RuntimeSession(runtime) as session:
        values = [[numbers.getrandbits(64) for _ in range(i % (most - 3))] for i in range(200)]
        log = RecorderLog(session.device, len(values))
        session.start()
        for index, own in enumerate(values):
            task = session.submit(index % 2, log.arguments(index, own))
            session.publish(task)
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        for index, total in enumerate(log.read()["sum"]):
            expect(
                int(total) == sum_of_values(values[index]),
                f"task {index} did not receive the {len(values[index])} values of its submit",
            )


def check_empty_run(runtime: RuntimeSubject) -> None:
    """Require that a run without tasks succeeds."""
    with RuntimeSession(runtime) as session:
        run_and_verify(session, graphs.independent(0))


def check_many_runs(runtime: RuntimeSubject, runs: int = 100) -> None:
    """Require that a device runs many graphs without leaks."""
    session = RuntimeSession(runtime)
    for _ in range(runs):
        run_and_verify(session, graphs.diamond())
    leaks = session.device.close()
    expect(leaks.buffers == 0, f"{leaks.buffers} buffers are left after {runs} runs")


def check_devices_side_by_side(runtime: RuntimeSubject) -> None:
    """Require that two devices with one variant do not see each other's tasks."""
    graph = graphs.chain(50)
    with RuntimeSession(runtime, 0) as first, RuntimeSession(runtime, 1) as second:
        logs = [(session, RecorderLog(session.device, 50)) for session in (first, second)]
        for session, _ in logs:
            session.start()
        for session, log in logs:
            session.submit_graph(graph, log)
        for session, log in reversed(logs):
            outcome = session.end()
            expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
            graph.verify(log.read())


def check_edge_from_a_finished_task(runtime: RuntimeSubject) -> None:
    """Require that an edge from a completed task delays no task."""
    with RuntimeSession(runtime) as session:
        log = RecorderLog(session.device, 2)
        session.start()
        first = session.submit(0, log.arguments(0))
        session.publish(first)
        if session.flags & abi.RuntimeFlag.CONCURRENT_BUILD:
            _await_run(log, 0)
        second = session.submit(1, log.arguments(1))
        session.add_edge(first, second)
        session.publish(second)
        outcome = session.end()
        expect(outcome.status == abi.Status.OK, f"the run ended with {outcome.message}")
        Graph("edge from a finished task", 2, [(0, 1)]).verify(log.read())


def _await_run(log: RecorderLog, index: int) -> None:
    deadline = time.monotonic() + RUN_LIMIT_S
    while not log.read()["end"][index]:
        if time.monotonic() > deadline:
            raise ContractError(
                f"a published task did not run within {RUN_LIMIT_S} s, while the graph was built"
            )
        time.sleep(0)


def check_deterministic_runs(
    runtime: RuntimeSubject, seeds: int = 20, seed: int | None = None
) -> None:
    """Require correct results for every seed of deterministic mode, and one trace for each seed."""
    with random_numbers(seed) as numbers:
        graph = graphs.random_graph(numbers, 40)
        for chosen in (numbers.getrandbits(31) for _ in range(seeds)):
            hashes = set()
            for _ in range(2):
                with RuntimeSession(runtime, mode="deterministic", seed=chosen) as session:
                    report = run_and_verify(session, graph, block_dim=3).report
                    hashes.add(int(report.trace_hash))
            expect(len(hashes) == 1, f"sim seed {chosen} produced the traces {sorted(hashes)}")


def check_checked_runs(runtime: RuntimeSubject) -> None:
    """Require that a submit with freed memory fails with ADDRESS in a checked run."""
    with RuntimeSession(runtime, check=1) as session:
        run_and_verify(session, graphs.hourglass(20))
        log = RecorderLog(session.device, 1)
        freed = session.device.allocate(4096)
        session.device.free(freed)
        session.start()
        if session.flags & abi.RuntimeFlag.TENSORS:
            view = (abi.Tag.INPUT, tensor(freed, 16))
            task = session.submit_tensors(0, [view], log.arguments(0))
        else:
            task = session.submit(0, log.arguments(0, [freed]))
        outcome = session.end()
        expect(
            (task, outcome.status) == (-1, abi.Status.ADDRESS),
            f"submit with a freed address returned {task}, the run {outcome.status.name}; "
            "expected -1 and ADDRESS",
        )
        run_and_verify(session, graphs.diamond())


def check_statistics(runtime: RuntimeSubject) -> None:
    """Require counters with distinct names in snake case, and a text of explain(), after a run."""
    with RuntimeSession(runtime) as session:
        table = session.device.runtime_table
        run_and_verify(session, graphs.diamond())
        counters = (abi.Statistic * _STATISTICS)()
        count = table.statistics(session.device.runtime_handle, counters, _STATISTICS)
        names = [counter.name.decode() for counter in counters[:count]]
        expect(names, "statistics() returns no counters")
        expect(len(set(names)) == len(names), f"counters have the same name: {names}")
        bad = [name for name in names if not _STATISTIC_NAME.fullmatch(name)]
        expect(not bad, f"counter names that are not snake case: {bad}")
        again = table.statistics(session.device.runtime_handle, counters, 1)
        expect(
            again == count, f"statistics() returns {count}, but {again} with space for one counter"
        )
        text = ctypes.create_string_buffer(4096)
        length = table.explain(session.device.runtime_handle, text, len(text))
        expect(
            0 < length <= len(text) and len(text.value) in (length, length - 1),
            f"explain() returned {length}, but it wrote {len(text.value)} bytes",
        )


def check_table(runtime: RuntimeSubject) -> None:
    """Require that the table has the ABI's version and size, every entry, and the variant's name.

    An unknown variant returns a null pointer.
    """
    table = runtime.native.table
    expect(table.abi_version == abi.ABI_VERSION, f"abi_version is {table.abi_version}")
    size = ctypes.sizeof(abi.RuntimeApi)
    expect(table.struct_size >= size, f"struct_size is {table.struct_size}, the table has {size}")
    optional = {"attend", "access_log", "export_graph", "import_graph"}
    needed = set(entries(abi.RuntimeApi)) - optional
    missing = [name for name in sorted(needed) if not getattr(table, name)]
    expect(not missing, f"the table has no {', '.join(missing)}")
    expect(table.variant == runtime.name.encode(), f"{runtime.name}: variant is {table.variant!r}")
    expect(
        table.max_tasks == 0 or table.max_tasks >= MANY_TASKS,
        f"max_tasks is {table.max_tasks}, less than {MANY_TASKS}",
    )
    unknown = runtime.native.entry("no_such_variant")
    expect(not unknown, "pto_runtime_entry('no_such_variant') returned a table, not NULL")


def check_claims_agree(runtime: RuntimeSubject) -> None:
    """Require that the plugin claims exactly the capabilities whose flags its library has set."""
    known = {*CAPABILITY_FLAGS, "inferred_edges"}
    unknown = sorted(set(runtime.plugin.capabilities) - known)
    expect(not unknown, f"unknown capabilities: {unknown}; expected some of {sorted(known)}")
    for capability, flag in CAPABILITY_FLAGS.items():
        named, has = capability in runtime.plugin.capabilities, bool(runtime.native.flags & flag)
        expect(
            named == has, f"{capability!r}: claimed by the plugin: {named}, by its library: {has}"
        )
