"""Run the kernel of a dumped task again: choose or build its library, start it, compare."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pto_core.config import Config, child_environment
from pto_core.errors import TaskFailedError, UnsupportedError, UsageError
from pto_core.errors.values import signal_text
from pto_core.kernels.callables import file_digest
from pto_core.toolchain import Toolchain
from pto_core.trust import reason_for_distrust
from pto_insight.dumps.runner import ADDRESS_IN_USE, ASSERTION
from pto_insight.dumps.task_dump import TaskDump
from pto_insight.dumps.text import difference

GDB = "gdb -q -ex 'set breakpoint pending on' -ex 'break kernel_entry' -ex run --args"
SANITIZERS = ("address", "undefined")

_ATTEMPTS = 8
_SYMBOLS = ("-g", "-O0")


class Replay(NamedTuple):
    """A call that returned: the arrays after it by position, and the times of all calls in ns."""

    after: Mapping[int, NDArray[Any]]
    times: NDArray[Any]


def check_replayable(dump: TaskDump, path: Path) -> None:
    """Raise UnsupportedError if the call cannot be made again; UsageError for a file of others."""
    reason = ""
    if not dump.library:
        reason = "its kernel is a Python function; call it with the arrays of TaskDump.read(FILE)"
    elif dump.is_together:
        reason = "its kernel may wait for other kernels, which do not run here"
    elif not _is_of_this_machine(Path(dump.library)):
        reason = (
            "its kernel is code for another machine, such as a card; dump the task on the "
            "simulator, with -p a2a3sim"
        )
    elif len(dump.before) < len(dump.arguments) or dump.left_out:
        reason = "it lacks arrays before the call; dump the task without :TENSOR, at the level all"
    if reason:
        raise UnsupportedError(
            f"{dump.label} cannot be run again: {reason}", name="dump", value=str(path)
        )
    source = () if dump.request is None else (dump.request.source,)
    for file in (path, Path(dump.library), *source):
        if (distrust := reason_for_distrust(file)) is not None:
            raise UsageError(
                f"{file} is not used, because a replay runs code that it names: {distrust}",
                name="dump",
                value=str(file),
            )


def _is_of_this_machine(library: Path) -> bool:
    """Return whether a library can be loaded here, or is no longer there."""
    machine, shared = slice(18, 20), slice(16, 18)
    with Path(sys.executable).open("rb") as program, contextlib.suppress(OSError):
        own = program.read(20)
        with library.open("rb") as file:
            header = file.read(20)
        return header[shared] == b"\3\0" and header[machine] == own[machine]
    return True


def library_of(dump: TaskDump, config: Config, flags: tuple[str, ...], *, rebuild: bool) -> Path:
    """Return the library of the run if it still exists, or build it from its source.

    ``flags`` are added to those of the build. Raises CompileError, and UnsupportedError if it is
    not known how the library was built.
    """
    library = Path(dump.library)
    if not flags and not rebuild:
        try:
            if file_digest(library).hex() == dump.digest:
                return library
        except OSError:
            pass  # the cache has removed it
    if dump.request is None:
        raise UnsupportedError(
            f"{library} is no longer the library of the run, or a build with other flags is asked "
            f"for, and the source of the kernel {dump.kernel!r} is not known: the run got a binary",
            name="library",
            value=str(library),
        )
    request = replace(dump.request, flags=(*dump.request.flags, *flags))
    return Toolchain(config).build_many([request])[0]


def flags_of(sanitizers: str | None, *, with_symbols: bool) -> tuple[str, ...]:
    """Return the flags for a debugger or for sanitizers, such as ``address,undefined``."""
    if sanitizers is None:
        return _SYMBOLS if with_symbols else ()
    names = sanitizers.split(",")
    if not set(names) <= set(SANITIZERS):
        raise UsageError(
            f"--sanitize is {sanitizers!r}; use {', '.join(SANITIZERS)}, or both with a comma",
            name="sanitize",
            value=sanitizers,
        )
    return (*_SYMBOLS, f"-fsanitize={sanitizers}", f"-fno-sanitize-recover={sanitizers}")


def replayed(
    dump: TaskDump, path: Path, library: Path, times: int, debugger: str | None
) -> Replay | None:
    """Call the kernel in a process of its own; return None if a debugger ended before the call.

    Raises TaskFailedError if the process died, and UsageError if the debugger is missing.
    """
    with tempfile.TemporaryDirectory(prefix="pto-replay-") as folder:
        out = Path(folder) / "after.npz"
        program = [sys.executable, "-P", "-m", "pto_insight.dumps.runner"]
        command = [*program, str(path), str(library), str(times), str(out)]
        if debugger is not None:
            command = [*shlex.split(debugger), *command]
            if shutil.which(command[0]) is None:
                raise UsageError(
                    f"the debugger {command[0]!r} was not found; install it, or name another one "
                    "with --debugger",
                    name="debugger",
                    value=debugger,
                )
        code = ADDRESS_IN_USE
        for _ in range(_ATTEMPTS):
            if code == ADDRESS_IN_USE:
                code = subprocess.run(command, env=_environment(library), check=False).returncode
        if not out.exists() and debugger is None:
            assertion = out.with_name(ASSERTION)
            raise _failure(dump, code, assertion.read_text() if assertion.exists() else "")
        return _read(out) if out.exists() else None


def _failure(dump: TaskDump, code: int, assertion: str) -> TaskFailedError:
    if assertion:
        return TaskFailedError(
            f"an assertion of {dump.label} failed: {assertion}; --gdb stops at the first line",
            kernel=dump.kernel,
        )
    how = signal_text(-code) if code < 0 else f"code {code}"
    if code == ADDRESS_IN_USE:
        how = "its addresses in use by the system; try again"
    return TaskFailedError(
        f"the call of {dump.label} ended with {how}; --sanitize address names a wrong access, "
        "--gdb stops at the first line",
        kernel=dump.kernel,
        signal=-code if code < 0 else None,
    )


def _environment(library: Path) -> dict[str, str]:
    """Return the environment for a library, whose sanitizer must be loaded before all others."""
    # The dynamic linker of glibc lists what it would load instead of beginning the program.
    listed = subprocess.run(
        [sys.executable],
        env={**child_environment(), "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"=> (\S*lib(?:asan|clang_rt\.asan)\S*)", listed.stdout)
    usual = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    environment = usual | child_environment()
    if found:
        environment["LD_PRELOAD"] = " ".join([*found, environment.get("LD_PRELOAD", "")])
    return environment


def _read(out: Path) -> Replay:
    with np.load(out, allow_pickle=False) as members:
        after = {int(name[5:]): members[name] for name in members.files if name != "times"}
        return Replay(after, members["times"])


def differences(dump: TaskDump, replay: Replay) -> Iterator[str]:
    """Yield a line for each array that the call left different from the run.

    Of a block, only elements that it wrote here are compared, because the other blocks may have
    written the others.
    """
    for one in dump.arguments:
        expected = dump.after.get(one.argument)
        if expected is None:
            continue
        before, found = dump.before[one.argument], replay.after[one.argument]
        if dump.blocks > 1:
            found = np.where(found != before, found, expected)
        kind = dump.values("before", one.argument)
        assert kind is not None, "all arrays before the call were kept"
        change = difference(expected.view(kind.dtype), found.view(kind.dtype))
        if change is not None:
            yield f"{one.argument}: {one.name or 'memory'}: {change}"


def distribution(times: NDArray[Any]) -> str:
    """Return the spread of times in nanoseconds as text."""
    ordered = np.sort(times) / 1000
    names = {"min": 0, "p50": 50, "p90": 90, "p99": 99, "max": 100}
    figures = "  ".join(
        f"{name} {np.percentile(ordered, at, method='nearest'):.1f} us"
        for name, at in names.items()
    )
    counts, edges = np.histogram(ordered, np.geomspace(ordered[0], ordered[-1] * 1.01, 11))
    bars = [
        f"{low:>10.1f} us  {'#' * -(-40 * int(count) // int(counts.max())):<40} {count}"
        for low, count in zip(edges, counts, strict=False)
    ]
    return "\n".join([f"{len(times)} calls: {figures}", *bars])
