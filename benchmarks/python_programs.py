"""The programs of ``benchmarks.programs`` on pto, ``concurrent.futures``, Ray and Dask."""

from __future__ import annotations

import ast
import functools
import heapq
import importlib
import inspect
import itertools
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.effort import Effort
from benchmarks.figure import Figure, interleaved, wall_s
from benchmarks.programs import work
from pto_core import Worker, task

_PEERS = {"futures": "concurrent.futures", "ray": "Ray", "dask": "Dask"}
_RETRIED = 20
_markers = itertools.count()
_TITLES = {
    "map_items": f"map of {work.ITEMS} items",
    "pipeline": f"pipeline of {work.ROWS} x 3 tasks",
    "retries": f"{_RETRIED} tasks that fail once",
    "shared_array": f"{work.PARTS} sums of an array of {work.ARRAY_BYTES >> 20} MiB",
    "tree": f"tree of {2 * work.LEAVES - 1} tasks",
    "calls": f"asyncio, {work.CALLS} tasks of {work.CALL_S * 1e3:.0f} ms",
}


def figures(effort: Effort) -> Iterator[Figure]:
    """Measure each program on all installed systems alternately, with two processes each."""
    peers, missing = {}, {}
    for name, title in _PEERS.items():
        try:
            peers[title] = importlib.import_module(f"benchmarks.programs.on_{name}")
        except ImportError as error:
            missing[title] = str(error)
    ours = importlib.import_module("benchmarks.programs.on_pto")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        systems = {
            title: (module, stack.enter_context(module.pool()))
            for title, module in {"pto": ours, **peers}.items()
        }
        for program in _TITLES:
            measures = {
                title: partial(_program_s, module, pool, program, folder)
                for title, (module, pool) in systems.items()
            }
            yield from _compared(program, interleaved(measures, effort.repeats), systems, missing)
    yield from _uneven_tasks(effort)
    yield from _values(effort)


def _uneven_tasks(effort: Effort) -> Iterator[Figure]:
    """Compare the time of tasks of random lengths with a list schedule; each sample has its own."""
    rest, count = task(_rest), effort.size(200)

    def over_a_list_schedule(worker: Worker, children: int, seed: int) -> float:
        lengths = random.Random(seed)
        seconds = [min(0.01 * lengths.paretovariate(1.5), 1.0) for _ in range(count)]
        ends = [0.0] * children
        for one in seconds:
            heapq.heapreplace(ends, ends[0] + one)

        def submit_all() -> None:
            with worker.session() as s:
                for one in seconds:
                    s.submit(rest, one)

        return wall_s(submit_all) / max(ends)

    for children in (2, 4):
        with Worker(level=3, num_sub_workers=children) as worker:
            worker.map(_rest, [0.01] * children)
            taken = [over_a_list_schedule(worker, children, n) for n in range(effort.repeats)]
        yield Figure(
            f"Worker, tasks of random lengths, {children} children, over a list schedule",
            "x",
            taken,
            1.05,
            peer_name="list schedule",
            peer=[1.0] * len(taken),
        )


def _rest(seconds: float) -> None:
    time.sleep(seconds)


def _values(effort: Effort) -> Iterator[Figure]:
    """Measure small values and a large result, with one process."""
    echo, whole = task(work.echo), task(work.whole_array)
    value, tasks = {"name": "an argument"}, effort.size(10_000)

    def submit_all() -> None:
        with worker.session() as s:
            handles = [s.submit(echo, value) for _ in range(tasks)]
            for handle in handles:
                handle.result()

    def pickle_all() -> None:
        for _ in range(2 * tasks):
            pickle.loads(pickle.dumps(value, 5))

    def result() -> None:
        with worker.session() as s:
            s.submit(whole).result()

    source, target = work.whole_array(), np.ones(work.ARRAY_BYTES // 8, np.int64)
    with Worker(level=3, num_sub_workers=1) as worker:
        taken = interleaved(
            {
                "tasks": lambda: wall_s(submit_all) / tasks * 1e6,
                "pickle": lambda: wall_s(pickle_all) / tasks * 1e6,
                "result": lambda: wall_s(result),
                "memcpy": lambda: wall_s(lambda: np.copyto(target, source)),
            },
            effort.repeats,
        )
    yield Figure(
        "Worker, small pickled argument and result, pipelined",
        "us/task",
        taken["tasks"],
        6.0,
        peer_name="pickle and unpickle both",
        peer=taken["pickle"],
    )
    yield Figure(
        f"Worker, result of {work.ARRAY_BYTES >> 20} MiB, share of the rate of memcpy",
        "x",
        [copy / ours for copy, ours in zip(taken["memcpy"], taken["result"], strict=True)],
        0.6,
        at_least=True,
        peer_name="memcpy",
    )


def _compared(
    program: str,
    taken: dict[str, list[float]],
    systems: dict[str, tuple[ModuleType, Any]],
    missing: dict[str, str],
) -> Iterator[Figure]:
    lines = {
        title: program_lines(inspect.getsource(module), program)
        for title, (module, _) in systems.items()
    }
    for title in _PEERS.values():
        is_there = title in taken
        yield Figure(
            f"program: {_TITLES[program]}, beside {title}",
            "ms",
            [value * 1e3 for value in taken["pto"]] if is_there else [],
            peer_name=title,
            peer=[value * 1e3 for value in taken.get(title, [])],
            note=f"{lines['pto']} lines, {title} {lines[title]}" if is_there else "",
            not_measured=missing.get(title, ""),
        )


def program_lines(source: str, program: str) -> int:
    """Return the number of lines of a program, with those of what it uses in its module."""
    defined = {
        name: node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.Assign)
        for name in _names(node)
    }
    used, waiting = set(), [program]
    while waiting:
        node = defined[waiting.pop()]
        if node in used:
            continue
        used.add(node)
        found = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
        waiting += [name for name in found if name in defined]
    text = "\n".join(ast.get_source_segment(source, node) or "" for node in used)
    decorators = sum(len(node.decorator_list) for node in used if hasattr(node, "decorator_list"))
    return decorators + sum(bool(line.strip()) for line in text.splitlines())


def _names(node: ast.FunctionDef | ast.Assign) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    stored = (one for target in node.targets for one in ast.walk(target))
    return [one.id for one in stored if isinstance(one, ast.Name)]


def _case(program: str, folder: Path) -> tuple[tuple[Any, ...], int]:
    """Return the arguments of a program after its pool, and the result that it must have."""
    if program == "retries":
        return ([str(folder / f"{next(_markers)}") for _ in range(_RETRIED)],), _RETRIED
    if program == "shared_array":
        return (_array(),), int(_array().sum())
    squares = {"map_items": work.ITEMS, "tree": work.LEAVES}
    if program in squares:
        return (), sum(item * item for item in range(squares[program]))
    if program == "pipeline":
        return (), sum(3 * row for row in range(work.ROWS))
    return (), sum(range(work.CALLS))


@functools.cache
def _array() -> np.ndarray[Any, Any]:
    return np.arange(work.ARRAY_BYTES // 8) % 7


def _program_s(module: ModuleType, pool: Any, program: str, folder: Path) -> float:
    run: Callable[..., int] = getattr(module, program)
    arguments, expected = _case(program, folder)
    results: list[int] = []
    elapsed = wall_s(lambda: results.append(run(pool, *arguments)))
    if results != [expected]:
        raise RuntimeError(f"{module.__name__}.{program} returned {results}, not {expected}")
    return elapsed
