"""Open a device with a runtime, and run chips on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never
from weakref import WeakSet

from pto_core import _native, log, plugins, standard_streams
from pto_core.config import Config, given, load_with_plugins
from pto_core.config.options import CHECK, HAZARDS
from pto_core.device.dumping import Dumping
from pto_core.device.foreign_tensors import addresses_of, handle_of
from pto_core.device.programs import Chip, Programs
from pto_core.device.report import Activity, DeviceProcess, RunReport
from pto_core.device.tracing import DeviceTracing
from pto_core.errors import ConfigError, DeadlockError, UnsupportedError, UsageError
from pto_core.errors.values import check_seconds, explain_names, invalid_value, shown, suggestion
from pto_core.interfaces import Backend, Runtime, TensorSharingBackend
from pto_core.interfaces.observer import RunInfo
from pto_core.kernels import CallConfig
from pto_core.kernels.call_config import with_access_log, with_dump
from pto_core.plugins import Observers, insight, observation, registered
from pto_core.progress import Follower, Listener, Progress, default_listener
from pto_core.toolchain import Toolchain, device_options, runtime_artefacts

if TYPE_CHECKING:
    from pto_insight.dumps.recording import DumpedRun
    from pto_insight.graphs import AccessLog, TaskGraph
    from pto_insight.traces import Trace


_SIMULATOR = "a2a3sim"
_MOST_FINDINGS = 20
_RUN_HOOKS = frozenset({"pto_run_started", "pto_run_finished"})
_NO_BLOCK = nullcontext()


class Device:
    """A device of a backend with an attached runtime; :func:`open_device` creates it.

    The device belongs to this process; a forked process cannot use it. Only one thread at a time
    may use it, but any thread may call :meth:`activity` and :meth:`interrupt`. A ``with`` block
    closes the device at its end.
    """

    def __init__(
        self,
        native: _native.Device,
        config: Config,
        backend: Backend,
        runtime: Runtime,
        observers: Observers,
    ) -> None:
        self._identity = (config["backend"], config["runtime"], config["device"])
        self._native = native
        self._config = config
        self._programs = Programs(native, backend, runtime, Toolchain(config))
        native.set_loader(self._programs.load_kernel)
        self._default = CallConfig(config["block_dim"], config["aicpu_thread_num"])
        self._call_config = self._default.pack()
        self.tracing = DeviceTracing(config, can_trace=native.can_trace)
        self._dumping = Dumping(config, can_dump="dump" in backend.capabilities)
        self._task_timeout_s = config["task_timeout_s"]
        self._measures: bool = config["measure"]
        self._hazards: str | None = config["hazards"]
        self._observers = observers
        self._sharing = backend if isinstance(backend, TensorSharingBackend) else None
        self._runs = 0
        self._process = None if native.process is None else DeviceProcess(*native.process)

    @property
    def name(self) -> str:
        """The backend, the device number and the runtime as readable text."""
        backend, runtime, number = self._identity
        return f"{backend}:{number} with {runtime}"

    @property
    def config(self) -> Config:
        """The settings with which the device was opened."""
        return self._config

    @property
    def is_open(self) -> bool:
        """Whether this process can use the device: it opened the device and has not closed it."""
        return self._native.is_open

    @property
    def is_lost(self) -> bool:
        """Whether a kernel never returned. Such a device is lost: it can only be closed."""
        return self._native.is_lost

    @property
    def blocks(self) -> int:
        """The number of blocks of a run without ``config``: ``block_dim``, or all if it is 0."""
        return self.config["block_dim"] or self._native.blocks

    @property
    def process(self) -> DeviceProcess | None:
        """The process on the device that runs the runtime; None if it runs in the host process."""
        return self._process

    def prepare(self, chip: Chip) -> None:
        """Build and load the code of ``chip`` before its first run.

        Raises UsageError, CompileError or LoadError.
        """
        self._programs.get(chip)

    def run(
        self,
        chip: Chip,
        *args: Any,
        config: CallConfig | None = None,
        timeout_s: float | None = None,
        hazards: str | None = None,
        accesses: bool = False,
        written: bool = False,
        trace: int | None = None,
        stream: object = None,
        progress: bool | Listener = False,
        dump: str | bool = False,
        **unknown: Never,
    ) -> RunReport:
        """Run ``chip`` on ``args`` and wait. Outputs are complete when this returns.

        ``chip``: a :class:`~pto_core.ChipCallable` or a Python orchestration ``def graph(rt,
        *args)``. ``args``: arrays (NumPy, buffer protocol, DLPack; C-contiguous), device arrays,
        ints, floats, ctypes scalars. A Python orchestration receives a device array for each array,
        and every other argument unchanged. On a backend that shares tensors, a DLPack tensor in the
        memory of the device is passed as its address, an int, without a copy. ``stream``: a stream
        of torch_npu, or the handle of a stream; the run starts after the work on it. ``config``:
        None takes ``block_dim`` and ``aicpu_thread_num`` from the device's settings. ``timeout_s``:
        the time limit of the run; a Python orchestration is interrupted at its next call of ``rt``,
        or when it returns. ``hazards``: the conflicts that order two tasks, for runtimes that find
        dependencies themselves. ``"raw"``: a reader waits for earlier writers. ``"full"``: a writer
        also waits for earlier readers and writers. None takes the setting ``hazards``; its default
        is ``"full"`` for a Python orchestration and ``"raw"`` for a C++ one. ``"check"``: as the
        default, and after the run a RaceError reports the tasks that race. ``accesses``: keep the
        access log in the report; ``written``: with the bytes that measured tasks wrote. ``trace``:
        1 to 4 records the run in ``report.trace`` (docs/traces.md). ``progress``: as for
        :meth:`pto_core.Worker.session`, with the numbers of kernels that have begun and ended; on a
        backend that does not show its running kernels, both are 0. ``dump``: the tasks whose arrays
        are written to ``report.dumps``, such as ``"add#3"``, or True for all (docs/dumps.md).

        Raises UsageError for invalid arguments before the run starts; CompileError and LoadError;
        otherwise the first error of the run. The exception of a kernel is the ``__cause__`` of a
        TaskFailedError. The exception of an orchestration is raised unchanged, except SystemExit,
        which is the ``__cause__`` of an OrchestrationError with its code. After a RunTimeoutError
        or KeyboardInterrupt the device remains usable, unless a kernel did not return. Such a
        device is lost: a TaskTimeoutError names the kernel, and later calls raise DeviceLostError.
        After an error, outputs keep their earlier content, unless a C++ orchestration on the host
        wrote them.
        """
        _check_options(unknown)
        self.tracing.last = None
        is_checked = _is_checked(self._hazards if hazards is None else hazards, accesses)
        packed = self._packed(config, trace)
        writes_graph = config is not None and config.enable_dep_gen != 0
        files = None if config is None else _files_of(config, trace, self.tracing, self._runs + 1)
        is_traced = _is_traced(config, trace)
        used = None if is_checked else hazards
        followed = _followed(self._native, self.name, progress) if progress else _NO_BLOCK
        dumped = self._dumping.begin(config, dump, self._runs + 1)
        with followed, dumped or _NO_BLOCK:
            if accesses or is_checked or writes_graph or dumped:
                packed = _logged(packed, written, dumped)
            report = self._run(chip, args, packed, timeout_s, used, files, is_traced, stream)
        return self._concluded(report, config if writes_graph else None, dumped, is_checked)

    def graph(
        self,
        chip: Chip,
        *args: Any,
        config: CallConfig | None = None,
        timeout_s: float | None = None,
        hazards: str | None = None,
    ) -> TaskGraph:
        """Run ``chip`` on ``args`` and return the graph of its tasks.

        The parameters and errors are those of :meth:`run`. The graph has all edges of the program
        and does not depend on the timing of this run.
        """
        self.tracing.last = None
        packed = _logged(self._packed(config, None))
        is_traced = _is_traced(config, None)
        report = self._run(chip, args, packed, timeout_s, hazards, None, is_traced)
        return self._graph_of(report)

    def _run(
        self,
        chip: Chip,
        args: tuple[Any, ...],
        packed: bytes,
        timeout_s: float | None,
        hazards: str | None,
        files: _Files | None,
        is_traced: bool,
        stream: object = None,
    ) -> RunReport:
        if timeout_s is not None:
            check_seconds(timeout_s)
        program = self._programs.get(chip)
        chosen = self._native_hazards(hazards, program)
        handle = 0 if stream is None else handle_of(stream, self._native, self._sharing)
        self._runs += 1
        info = None
        if not _RUN_HOOKS.isdisjoint(registered.hooks):
            info = RunInfo(*self._identity, program.name, len(args), self._runs)
            self._observers.notify("pto_run_started", info=info)
        kept: list[Any] = []
        if self._sharing is not None:
            memory = self._sharing.dlpack_device_type, self._config["device"]
            args, kept = addresses_of(args, *memory)
        traces: list[Any] = []
        is_recorded = is_traced or self.tracing.flight_recorder is not None
        try:
            fields = self._native.run(
                program,
                args,
                packed,
                timeout_s,
                self._task_timeout_s,
                chosen,
                self._measures,
                self.tracing.begin() if is_recorded else None,
                traces,
                handle,
            )
        except BaseException as error:
            _add_notes(error, self._native, *self._identity[:2])
            trace = self.tracing.failed(traces, error) if is_recorded else None
            if files is not None:
                files.write_after(error, trace)
            if info is not None:
                self._observers.notify("pto_run_finished", info=info, report=None, error=error)
            raise
        finally:
            del kept
        report = RunReport._make((*fields, None, self._process, ()))
        if report.accesses is not None:
            report = report._replace(accesses=_observed_log(fields[-1], self._identity[2]))
        if is_recorded:
            report = report._replace(trace=self.tracing.succeeded(traces, report))
        if files is not None:
            files.write(report.trace, report.statistics)
        if info is not None:
            self._observers.notify("pto_run_finished", info=info, report=report, error=None)
        return report

    @property
    def last_trace(self) -> Trace | None:
        """The trace of the last run, also if it failed; None if it was not traced or refused."""
        return self.tracing.last

    def _packed(self, config: CallConfig | None, trace: int | None) -> bytes:
        is_logged = observation.current is not None and observation.of_graphs() is not None
        if config is None and trace is None:
            return _logged(self._call_config) if is_logged else self._call_config
        chosen = self._default if config is None else config
        if not isinstance(chosen, CallConfig):
            raise invalid_value("config", chosen, "pass a CallConfig")
        if chosen.enable_pmu and not self.tracing.can_trace:
            raise UnsupportedError(
                f"the backend {self._identity[0]!r} has no counters of kernels (enable_pmu); "
                "run the program on the simulator, with the backend 'a2a3sim'",
                name="enable_pmu",
                value=chosen.enable_pmu,
            )
        check_blocks(chosen.block_dim, self._native.blocks)
        packed = chosen.pack(chosen.enable_l2_swimlane if trace is None else trace)
        packed = with_dump(packed, 0, "")
        return _logged(packed) if is_logged else packed

    def _graph_of(self, report: RunReport) -> TaskGraph:
        if report.accesses is None:
            raise UnsupportedError(
                f"the runtime {self._identity[1]!r} keeps no access log, so there is no graph; "
                "choose another runtime",
                name="runtime",
                value=self._identity[1],
            )
        return insight.TaskGraph(report.accesses)

    def _concluded(
        self,
        report: RunReport,
        config: CallConfig | None,
        dumped: DumpedRun | None,
        is_checked: bool,
    ) -> RunReport:
        """Write the dump of a run, and its graph if there is a ``config``. Raises RaceError."""
        if dumped:
            report = report._replace(dumps=dumped.finish(report.accesses))
        if config is not None:
            graph = self._graph_of(report)
            for ending in ("json", "svg"):
                graph.save(f"{self.tracing.numbered(config.output_prefix, self._runs)}.{ending}")
        if is_checked:
            self._graph_of(report).check().raise_for_races()
        return report

    def _native_hazards(self, hazards: str | None, program: _native.Program) -> int:
        """Return the numeric code of ``hazards`` for ``pto_run``, or of the default."""
        if hazards is not None:
            check_hazards(hazards, self._identity[1], self._native.has_tensors)
        default = "full" if program.is_python else "raw"
        setting = None if self._hazards == CHECK else self._hazards
        return HAZARDS.index(hazards or setting or default)

    def empty(self, shape: Any, dtype: Any = "float32") -> _native.DeviceArray:
        """Allocate an array in device memory; its content is undefined."""
        return self._native.empty(shape, dtype)

    def to_device(self, array: Any) -> _native.DeviceArray:
        """Copy an array into new device memory."""
        return self._native.to_device(array)

    def activity(self) -> list[Activity]:
        """List the kernels that are running now. Any thread may call this method."""
        return [Activity(*one) for one in self._native.activity()]

    def interrupt(self) -> None:
        """End the run of another thread with a KeyboardInterrupt, as Ctrl-C does on this thread.

        An orchestration in Python ends at its next wait in ``rt``. Copies and the wait for a stream
        are not interrupted. Without a run, this call does nothing.
        """
        self._native.interrupt()

    def close(self) -> None:
        """Stop the device and free its memory. A second call does nothing.

        Device arrays that were not freed become invalid, with a ResourceWarning.
        """
        buffers, size = self._native.close()
        self._programs.clear()
        if buffers:
            warnings.warn(
                f"device {self.name} was closed with {buffers} device arrays ({size} bytes) that "
                "were not freed; free them, or drop all references, before the device closes",
                ResourceWarning,
                stacklevel=2,
            )

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._native.is_open:
            warnings.warn(f"device {self.name} was never closed", ResourceWarning, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name}{'' if self._native.is_open else ', closed'}>"


_SUBMIT = "def graph(rt, x, out): rt.submit(kernel, x, out), and call device.run(graph, x, out)"
explain_names(Device, {"submit": _SUBMIT})


def _add_notes(error: BaseException, native: _native.Device, backend: str, runtime: str) -> None:
    """Add notes with further facts about the error of a run."""
    _add_findings(error)
    if not isinstance(error, DeadlockError) or not native.is_planning_missing:
        return
    error.add_note(
        f"The sizes are lower bounds: {backend} cannot continue an orchestration without "
        "kernels. The simulator can, and names sizes that suffice: "
        f"pto run CASE -p {_SIMULATOR} -r {runtime}"
    )


def _check_options(unknown: Mapping[str, object]) -> None:
    for name in unknown:
        known = [one for one in Device.run.__annotations__ if one not in ("return", "unknown")]
        raise UsageError(
            f"device.run has no option {name!r}{suggestion(name, known)}; pass all arrays by "
            "position, also those that the program writes, as in device.run(graph, x, out)",
            name=name,
        )


@dataclass(frozen=True)
class _Files:
    """The files that the diagnostics of a run write; their names start with ``prefix``."""

    prefix: Path
    trace: bool
    statistics: bool

    def write(self, trace: Trace | None, statistics: Mapping[str, int] | None) -> None:
        if self.trace and trace is not None:
            insight.write_trace(trace, self.prefix)
        if self.statistics and statistics is not None:
            insight.write_statistics(statistics, self.prefix)

    def write_after(self, error: BaseException, trace: Trace | None) -> None:
        """Write the trace of a failed run; if that is not possible, add a note to ``error``."""
        try:
            self.write(trace, None)
        except OSError as problem:
            error.add_note(f"the trace of the run was not written: {problem}")


@contextmanager
def _followed(
    native: _native.Device, label: str, progress: Literal[True] | Listener
) -> Iterator[None]:
    """Report the numbers of kernels that begin and end in a block."""
    first = native.kernel_counts()

    def counts(*, is_over: bool = False) -> Progress:
        begun, ended = native.kernel_counts()
        return Progress(begun - first[0], ended - first[1], 0, is_over, "kernels")

    follower = Follower(counts, default_listener(label) if progress is True else progress)
    follower.start()
    try:
        yield
    finally:
        follower.stop(counts(is_over=True))


def _files_of(
    config: CallConfig, trace: int | None, tracing: DeviceTracing, run: int
) -> _Files | None:
    # a caller that passes ``trace`` writes the trace itself; the counters are in it
    is_traced = bool(config.enable_l2_swimlane or (config.enable_pmu and trace is None))
    if not config.output_prefix or not (is_traced or config.enable_scope_stats):
        return None
    return _Files(
        Path(tracing.numbered(config.output_prefix, run)),
        trace=is_traced,
        statistics=bool(config.enable_scope_stats),
    )


def _is_traced(config: CallConfig | None, trace: int | None) -> bool:
    if config is None or config.enable_pmu:
        return bool(trace) or config is not None
    return bool(config.enable_l2_swimlane if trace is None else trace)


def _logged(packed: bytes, written: bool = False, dumped: DumpedRun | None = None) -> bytes:
    """Return a configuration whose run keeps its access log, which only a plugin can read."""
    insight.require()
    logged = with_access_log(packed, written=written)
    return with_dump(logged, dumped.level, dumped.file) if dumped else logged


def check_blocks(block_dim: int, blocks: int) -> None:
    """Raise UsageError if a run needs more blocks than the ``blocks`` of the device."""
    if block_dim > blocks:
        raise UsageError(
            f"block_dim is {block_dim}, but this device has {blocks} blocks; "
            f"pass at most {blocks}, or 0 for all blocks",
            name="block_dim",
            value=block_dim,
            expected=f"0 to {blocks}",
        )


def check_hazards(hazards: object, runtime: str, has_tensors: bool) -> None:
    """Raise UsageError if ``hazards`` is not in ``HAZARDS`` or does not apply to ``runtime``."""
    if not isinstance(hazards, str | None) or hazards not in HAZARDS:
        raise invalid_value(
            "hazards", hazards, "pass 'raw', 'full', 'check' or None", expected="raw, full or check"
        )
    if not has_tensors:
        raise UnsupportedError(
            f"hazards is {shown(hazards)}, but the runtime {runtime!r} orders tasks by the edges "
            "that "
            "the orchestration adds; omit hazards, or choose a runtime that finds dependencies "
            "by itself",
            name="hazards",
            value=hazards,
        )


def _is_checked(hazards: object, accesses: object) -> bool:
    if not isinstance(accesses, bool):
        raise invalid_value("accesses", accesses, "pass True or False")
    return isinstance(hazards, str) and hazards == CHECK


def _add_findings(error: BaseException) -> None:
    """Add the defects that the measured accesses of a failed run show as a note to its error."""
    fields = getattr(error, "access_log", None)
    if fields is None or not fields["is_measured"]:
        return
    findings = insight.TaskGraph(_access_log(fields)).check()
    found = [*findings.outside, *findings.undeclared, *findings.races][:_MOST_FINDINGS]
    if found:
        error.add_note("\n".join(["measured before the run failed:", *map(str, found)]))


def _observed_log(fields: dict[str, Any], device: object) -> AccessLog:
    """Return the access log, and add its graph to those that a command shows."""
    log_of_run = _access_log(fields)
    if (seen := observation.of_graphs()) is not None:
        seen.graphs.append((f"device {device}", insight.TaskGraph(log_of_run)))
    return log_of_run


def _access_log(fields: dict[str, Any]) -> AccessLog:
    return insight.AccessLog.from_fields(fields)


# The warnings about settings that were already shown in this process.
_warned: set[str] = set()
# The devices that may still be open. All open devices of one chip have the same runtime.
_opened: WeakSet[Device] = WeakSet()


def open_device(
    backend: str | None = None,
    *,
    runtime: str | None = None,
    device: int | None = None,
    config: Config | None = None,
    settings: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> Device:
    """Open a device and attach a runtime to it.

    ``backend``, ``runtime`` and ``device`` default to the configuration: ``"a2a3sim"``,
    ``"host_build_graph"`` and 0 if nothing else is set. If one of these plugins is not installed,
    and exactly one other plugin of its family is, the other plugin is the default. Pass further
    settings as a mapping (``settings={"sim.mode": "deterministic"}``) or as keywords with two
    underscores instead of the dot (``sim__mode="deterministic"``). ``config``: a loaded
    configuration for all settings that are not given here. Without ``config``, the environment and
    the settings file are read; suspicious settings cause a RuntimeWarning. Logging follows the
    device's settings.

    Raises ConfigError for settings, PluginError for plugins, BackendUnavailableError if the backend
    cannot run on this machine, and UsageError if this process has the same device open with another
    runtime.
    """
    arguments = {"backend": backend, "runtime": runtime, "device": device, **given(settings)}
    for key, value in keywords.items():
        arguments[key.replace("__", ".")] = value
    if config is not None:
        return _open(_adapted(config, given(arguments)))
    loaded = load_with_plugins(given(arguments))
    _warn(loaded)
    return _open(loaded)


def _adapted(config: Config, given: Mapping[str, Any]) -> Config:
    """Return ``config`` with ``given``; raise UsageError if ``given`` names another plugin."""
    for family in ("backend", "runtime"):
        name = given.get(family)
        if name is not None and plugins.canonical_name(family, name) != config[family]:
            raise UsageError(
                f"the {family} is {name!r}, but the given configuration was loaded for "
                f"{config[family]!r}; omit one of them",
                name=family,
                value=name,
                expected=config[family],
            )
    return config.replace({key: given[key] for key in given if key not in ("backend", "runtime")})


def _open(config: Config) -> Device:
    standard_streams.complete()
    log.configure(config)
    _check_call_settings(config)
    _check_one_runtime(config)
    backend = plugins.load_backend(config["backend"])
    runtime = plugins.load_runtime(config["runtime"])
    observers = plugins.load_observers().log_problems()
    toolchain = Toolchain(config)
    native = _native.Device(
        backend_library=str(backend.library()),
        runtime_library=str(runtime.library()),
        variant=runtime.name,
        artefacts=runtime_artefacts(toolchain, backend, runtime),
        number=config["device"],
        backend_options=device_options(toolchain, backend, config.native_options_of(backend)),
        runtime_options=config.native_options_of(runtime),
    )
    check_blocks(config["block_dim"], native.blocks)
    _check_hazards(config, native.has_tensors)
    device = Device(native, config, backend, runtime, observers)
    _opened.add(device)
    return device


def _warn(config: Config) -> None:
    for warning in config.warnings:
        if warning not in _warned:
            _warned.add(warning)
            warnings.warn(warning, RuntimeWarning, stacklevel=3)


def _check_call_settings(config: Config) -> None:
    """Raise UsageError for an invalid value before the device is opened; name its source."""
    try:
        CallConfig(config["block_dim"], config["aicpu_thread_num"])
    except UsageError as error:
        raise ConfigError(
            f"{error} ({config.origin(error.name)})",
            name=error.name,
            value=error.value,
            expected=error.expected,
            origin=config.origin(error.name),
        ) from None


def _check_one_runtime(config: Config) -> None:
    """Raise if this process has opened the chip with another runtime."""
    for device in list(_opened):
        other = device.config
        same_chip = all(other[key] == config[key] for key in ("backend", "device"))
        if device.is_open and same_chip and other["runtime"] != config["runtime"]:
            raise UsageError(
                f"device {config['device']} of {config['backend']} is open in this process with "
                f"the runtime {other['runtime']!r}, and a process uses one runtime per chip; close "
                f"it before you open it with {config['runtime']!r}, or open it in another process",
                name="runtime",
                value=config["runtime"],
                expected=other["runtime"],
            )


def _check_hazards(config: Config, has_tensors: bool) -> None:
    """Raise UsageError if the setting does not apply to the runtime; name the value's source."""
    if config["hazards"] in (None, CHECK):
        return
    try:
        check_hazards(config["hazards"], config["runtime"], has_tensors)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error} ({config.origin('hazards')})", name=error.name, value=error.value
        ) from None
