"""The process that runs cases. The supervisor starts it; it reads a job and writes events.

``main`` reads three file descriptors from the command line: the pipe for events, the activity page,
and the file to which this process writes its stack when the supervisor requests it. The job arrives
on standard input. SIGTERM raises KeyboardInterrupt, so that the process ends cleanly.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from io import TextIOWrapper

    from pto_core.cases.job import Job
    from pto_core.cases.kernel_config import KernelConfig
    from pto_core.config import Config
    from pto_core.interfaces import Backend

INTERRUPTED = 130
STACK_SIGNAL = signal.SIGUSR1
"""The signal on which the child writes its stack."""


def main() -> NoReturn:
    """Run the job, then exit at once, because the interpreter's teardown is slow and not needed."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    events, activity, whereabouts = map(int, sys.argv[1:])
    note_when_asked(whereabouts)
    code = 0
    try:
        text = sys.stdin.read()
        _print_lines_at_once()
        _run(text, _Events(events), activity)
    except (KeyboardInterrupt, BrokenPipeError):
        code = INTERRUPTED
    except BaseException:
        if not _was_interrupted():
            raise
        code = INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdout.flush()
        ctypes.CDLL(None).fflush(None)
    os._exit(code)


def note_when_asked(descriptor: int) -> None:
    """Install a signal handler that writes the main thread's stack, even during native code."""
    with contextlib.suppress(AttributeError, OSError):
        faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=False)


class _Events:
    """Writes events, one JSON object per line. In a fork of this process, a call exits the fork."""

    def __init__(self, descriptor: int) -> None:
        self._process = os.getpid()
        os.set_inheritable(descriptor, False)
        self._file = os.fdopen(descriptor, "wb", buffering=0)

    def __call__(self, event: str, **fields: Any) -> None:
        if os.getpid() != self._process:
            os._exit(0)
        self._file.write(json.dumps({"event": event, **fields}).encode() + b"\n")


def _run(text: str, emit: _Events, activity: int) -> None:
    """Run the job. A failure before the first case is reported as an event."""
    from pto_core.cases.report import error_to_json
    from pto_core.errors import InternalError, PtoError

    try:
        _run_job(text, emit, activity)
        emit("done")
    except Exception as error:
        if _was_interrupted():
            raise
        if isinstance(error, PtoError):
            emit("failed", error=error_to_json(error))
            return
        import traceback

        wrapped = InternalError(f"{type(error).__name__}: {error}")
        wrapped.add_note(traceback.format_exc())
        emit("failed", error=error_to_json(wrapped))


def _run_job(text: str, emit: _Events, activity: int) -> None:
    from pto_core import log, plugins
    from pto_core.cases.job import Job
    from pto_core.cases.kernel_config import load_kernel_config
    from pto_core.cases.session import JobRun, diagnostics_of
    from pto_core.device import open_device
    from pto_core.plugins import insight
    from pto_core.toolchain import BuildEvent, Toolchain, program_interface

    # The supervisor starts the time limit at this event, because user files run from here on.
    emit("phase", phase="loading")
    sys.dont_write_bytecode = True  # do not create __pycache__ in the folder of the case
    job = Job.from_json(text)
    recorder = insight.recorder(job) if job.record or job.recorded else None
    kernel_config = whole = load_kernel_config(job.kernel_config)
    config = _settings(job, kernel_config)
    runtime = chosen = plugins.load_runtime(config["runtime"])
    entry = kernel_config.orchestration(runtime.name)
    interface = None if entry.is_python else program_interface(runtime, entry.source, entry.api)
    if interface is not None and interface.runtime is not None:
        kernel_config = kernel_config.of_one_runtime(runtime.name)
        config = _settings(job, kernel_config, runtime=interface.runtime)
        runtime = plugins.load_runtime(interface.runtime)
    log.configure(config)
    if recorder is not None:
        config = recorder.configured(config, chosen.name, whole)
    for warning in (*config.warnings, *kernel_config.warnings):
        log.get(__name__).warning("configuration", reason=warning)
    os.environ.update(kernel_config.environment)
    emit("prepared", cache_dir=str(config["cache_dir"]))
    backend = plugins.load_backend(config["backend"])
    config = config.replace({**_observed(config, activity), **_seeded(config, backend, job.seed)})

    def progress(event: BuildEvent) -> None:
        emit(
            "source",
            source=str(event.source),
            state=event.state,
            done=event.done,
            total=event.total,
            seconds=event.seconds,
        )

    toolchain = Toolchain(config, progress)
    diagnostics = diagnostics_of(job.settings, job.set_, kernel_config.settings)
    session = JobRun(job, emit, diagnostics, recorder)
    session.run(
        config,
        kernel_config,
        (backend, runtime),
        toolchain,
        lambda config: open_device(config=config),
        lambda seed: config.replace(_seeded(config, backend, seed)),
    )


def _settings(job: Job, kernel_config: KernelConfig, **fixed: str) -> Config:
    """Read the settings of the job; ``fixed`` replaces some of them."""
    from pto_core.cases.session import texts_without_diagnostics, without_diagnostics
    from pto_core.config import load_with_plugins

    return load_with_plugins(
        {**without_diagnostics(job.settings), **fixed},
        texts_without_diagnostics(job.set_),
        without_diagnostics(kernel_config.settings),
        case_environ=kernel_config.environment,
        case_origin=f"{kernel_config.path.name} RUNTIME_CONFIG",
    )


def _observed(config: Config, activity: int) -> dict[str, Any]:
    """Return settings that make the backend use our activity page and measure core times."""
    wanted = {"activity_fd": activity, "timing": True}
    return {
        setting.key: wanted[setting.option.native]
        for setting in config.settings()
        if setting.option.native in wanted and setting.origin == "default"
    }


def _seeded(config: Config, backend: Backend, seed: int | None) -> dict[str, Any]:
    """Return settings for the deterministic mode with ``seed``; raises UnsupportedError."""
    if seed is None:
        return {}
    if "deterministic" not in backend.capabilities:
        from pto_core.errors import UnsupportedError

        raise UnsupportedError(
            f"the backend {backend.name!r} has no deterministic mode; leave out --seed",
            name="--seed",
            value=seed,
        )
    wanted = {"mode": "deterministic", "seed": seed}
    return {
        setting.key: wanted[setting.option.native]
        for setting in config.settings()
        if setting.option.native in wanted
    }


def _print_lines_at_once() -> None:
    """Flush standard output after each line, so that no line is lost if a kernel crashes."""
    cast("TextIOWrapper", sys.stdout).reconfigure(line_buffering=True)
    libc = ctypes.CDLL(None)
    line_buffered = 1
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, line_buffered, ctypes.c_size_t(0))


def _was_interrupted() -> bool:
    """Return whether SIGTERM was received. If so, a resulting exception is not a failure."""
    return signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
