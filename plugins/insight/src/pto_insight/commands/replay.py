"""Run the kernel of a dumped task again, alone, and compare its results with the dump.

FILE is a file that `pto run --dump` wrote at the level all. The kernel runs in a process of its own
with the arguments of the run. Exit codes: 0 as in the run, 1 other results, 4 the kernel crashed or
an assertion failed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pto_core.config import load_with_plugins
from pto_core.errors import UsageError
from pto_insight.dumps.replay import (
    GDB,
    check_replayable,
    differences,
    distribution,
    flags_of,
    library_of,
    replayed,
)
from pto_insight.dumps.task_dump import UNFINISHED, UNKNOWN, TaskDump


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``pto replay``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the dump of a task")
    parser.add_argument(
        "--rebuild", action="store_true", help="build the kernel from its source as it is now"
    )
    debugger = parser.add_mutually_exclusive_group()
    debugger.add_argument(
        "--gdb",
        dest="debugger",
        action="store_const",
        const=GDB,
        help="stop gdb at the first line of the kernel, built with symbols",
    )
    debugger.add_argument(
        "--debugger", metavar="COMMAND", help="run COMMAND with the program as its last arguments"
    )
    parser.add_argument(
        "--sanitize",
        metavar="NAMES",
        help="build the kernel with sanitizers: address, undefined, or address,undefined",
    )
    parser.add_argument(
        "--times", type=int, default=1, metavar="N", help="call the kernel N times; show the times"
    )


def run(namespace: argparse.Namespace) -> int:
    """Run the kernel and print how its results differ."""
    if namespace.times < 1:
        raise UsageError("--times must be at least 1", name="times", value=namespace.times)
    path = namespace.file.absolute()
    dump = TaskDump.read(path)
    check_replayable(dump, path)
    flags = flags_of(namespace.sanitize, with_symbols=namespace.debugger is not None)
    config = load_with_plugins(
        {"backend": dump.backend, "runtime": dump.runtime}, tuple(namespace.set)
    )
    library = library_of(dump, config, flags, rebuild=namespace.rebuild)
    if str(library) != dump.library:
        print(f"built {library} from {dump.request.source if dump.request else ''}", flush=True)
    result = replayed(dump, path, library, namespace.times, namespace.debugger)
    if result is None:
        print(f"{dump.label}: the debugger ended before the kernel returned")
        return 0
    if namespace.times > 1:
        print(distribution(result.times))
    if dump.state in (UNFINISHED, UNKNOWN):
        why = (
            "in the run it did not"
            if dump.state == UNFINISHED
            else "its dump lacks the arrays after"
        )
        print(f"{dump.label} returned here; {why}, so nothing is compared")
        return 0
    found = list(differences(dump, result))
    print("\n".join(f"{dump.label}: {line}" for line in found) or f"{dump.label}: as in the run")
    return 1 if found else 0
