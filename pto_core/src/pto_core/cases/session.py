"""The work of the child: build the kernels once, then run and check each case."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from pto_core.cases.endings import named, seed_note
from pto_core.cases.golden import (
    Golden,
    Inputs,
    TensorArgument,
    load_golden,
    mismatch_error,
)
from pto_core.cases.job import Job
from pto_core.cases.kernel_config import KernelConfig, KernelEntry
from pto_core.cases.report import (
    CaseReport,
    Copies,
    CoreShare,
    KernelTimes,
    OutputReport,
    ProcessReport,
    RunTimes,
)
from pto_core.cases.user_module import load_module, required, user_traceback
from pto_core.config import Config
from pto_core.device import Device, RunReport
from pto_core.errors import InternalError, OrchestrationError, PtoError, UsageError
from pto_core.interfaces import Backend, Runtime
from pto_core.kernels import CallConfig, ChipCallable, CoreCallable, Direction
from pto_core.plugins import insight
from pto_core.toolchain import (
    BuildRequest,
    Toolchain,
    orchestration_recipe,
    program_interface,
    recipe_of,
)

if TYPE_CHECKING:
    from pto_insight.records import Recording, Rerun
    from pto_insight.traces import Trace


Emit = Callable[..., None]
Measuring = Callable[[], "contextlib.AbstractContextManager[tuple[Build, Device]]"]
"""Builds kernels that report their accesses, and opens a device for them."""


class JobRun:
    """The work on one job, and the data that its cases share."""

    def __init__(
        self,
        job: Job,
        emit: Emit,
        diagnostics: Mapping[str, Any],
        recorder: Recording | Rerun | None = None,
    ) -> None:
        self._job = job
        self._emit = emit
        self._diagnostics = diagnostics
        self._recorder = recorder

    def run(
        self,
        config: Config,
        kernel_config: KernelConfig,
        plugins: tuple[Backend, Runtime],
        toolchain: Any,
        open_device: Callable[[Config], Device],
        seeded: Callable[[int], Config],
    ) -> None:
        """Build, open the device and run the cases; raises PtoError if no case can be run.

        ``seeded(seed)`` returns the configuration for a deterministic run with that seed.
        """
        golden = load_golden(self._job.golden, reference=not self._job.skip_golden)
        names = golden.names(self._job.case, self._job.every)
        if self._job.only is not None:
            names = list(self._job.only)
        if self._job.list_only:
            names = []
        self._emit("listing", cases=list(golden.cases), default=golden.default_case, run=names)
        if not names:
            return
        started = time.perf_counter()
        self._emit("phase", phase="compile")
        options = () if self._recorder is None else self._recorder.options
        build = Build(toolchain, kernel_config, *plugins, options)
        if self._recorder is not None:
            self._recorder.built(toolchain, config, build.artefacts)

        @contextlib.contextmanager
        def measuring() -> Iterator[tuple[Build, Device]]:
            measured = seeded(0).replace({"measure": True})
            build = Build(Toolchain(measured), kernel_config, *plugins, options)
            with open_device(measured) as device:
                yield build, device

        self._measuring = measuring
        compile_s = time.perf_counter() - started
        if self._job.seeds:
            for name in names:
                report = self._sweep(golden, build, name, lambda seed: open_device(seeded(seed)))
                report = replace(report, compile=compile_s, wall=report.wall + compile_s)
                compile_s = 0.0
                self._emit("report", report=report.to_json())
            return
        self._emit("phase", phase="open")
        with contextlib.ExitStack() as devices:
            device = devices.enter_context(open_device(config))
            self._emit("device", kernels=build.kernel_names, blocks=device.blocks)
            for name in names:
                if device.is_lost:
                    return  # the parent starts another child for the remaining cases
                case = self._case(golden, build, device, name)
                report = case.run()
                report = replace(report, compile=compile_s, wall=report.wall + compile_s)
                compile_s = 0.0
                self._emit("report", report=report.to_json())

    def _case(self, golden: Golden, build: Build, device: Device, name: str) -> _Case:
        config = None
        diagnostics = dict(self._diagnostics)
        if self._job.dump is not None:
            diagnostics["enable_dump_tensor"] = self._job.dump_level
            diagnostics["output_prefix"] = str(self._job.file_prefix(name))
        if any(diagnostics.values()):
            settings = device.config
            config = CallConfig(settings["block_dim"], settings["aicpu_thread_num"], **diagnostics)
        case = _Case(self._job, self._emit, golden, build, device, name, config, self._measuring)
        case.recorder = self._recorder
        return case

    def _sweep(
        self, golden: Golden, build: Build, name: str, open_device: Callable[[int], Device]
    ) -> CaseReport:
        """Run a case with each seed in turn until a run fails; return the last report."""
        seeds = self._job.seeds or 0
        assert seeds > 0, "the parser of the arguments has checked this"
        traces: set[str | None] = set()
        wall = 0.0
        for seed in range(seeds):
            self._emit("seed", seed=seed, seeds=seeds)
            with open_device(seed) as device:
                if seed == 0:
                    self._emit("device", kernels=build.kernel_names, blocks=device.blocks)
                case = self._case(golden, build, device, name)
                report = case.run(announced=seed > 0)
            wall += report.wall
            traces.add(report.trace_hash)
            failing = None if report.passed else seed
            report = replace(
                report, wall=wall, seeds=seed + 1, failing_seed=failing, traces=len(traces - {None})
            )
            if report.errors:
                report.errors[0].add_note(seed_note(self._job, name, seed))
                break
        return report


class _Case:
    """One case, run on an open device."""

    def __init__(
        self,
        job: Job,
        emit: Emit,
        golden: Golden,
        build: Build,
        device: Device,
        name: str,
        config: CallConfig | None,
        measuring: Measuring,
    ) -> None:
        self._config = config
        self._measuring = measuring
        self._job = job
        self._emit = emit
        self._golden = golden
        self._build = build
        self._device = device
        self._name = name
        self.recorder: Recording | Rerun | None = None
        self._traces: list[Trace] = []
        self._dumps: set[Path] = set()
        self._report = CaseReport(
            case=name,
            folder=str(job.golden.parent),
            backend=device.config["backend"],
            runtime=device.config["runtime"],
            device=device.config["device"],
            passed=False,
            exit_code=0,
            process=device.process and ProcessReport(**device.process._asdict()),
            api=build.api,
            rtol=golden.rtol,
            atol=golden.atol,
            exact_integers=golden.exact_integers,
        )

    def run(self, *, announced: bool = False) -> CaseReport:
        """Run all repetitions and check their outputs; an error becomes part of the report."""
        started = time.perf_counter()
        if not announced:
            names = ("case", "folder", "backend", "runtime", "device")
            process = self._device.process and self._device.process._asdict()
            values = {name: getattr(self._report, name) for name in names}
            self._emit("case", **values, process=process)
        if self._job.flight_recorder or self._job.trace:
            self._device.tracing.flight_recorder = self._job.file_prefix(self._name)
        try:
            with _as_pto_errors():
                self._attempt()
        except PtoError as error:
            self._fail(named(error, self._device.blocks))
        if self.recorder is not None:
            self._report = self.recorder.ended(self._report)
        self._write_files()
        return replace(
            self._report,
            passed=not self._report.errors,
            exit_code=max((error.exit_code for error in self._report.errors), default=0),
            wall=time.perf_counter() - started,
        )

    def _attempt(self) -> None:
        self._phase("inputs")
        inputs = self._golden.generate(self._name)
        if self.recorder is not None:
            inputs = self.recorder.restored(inputs, self._name)
        references = not self._job.skip_golden
        copies = {t.name: t.copied() for t in inputs.tensors} if references else {}
        expected: dict[str, Any] | None = None
        if references and not inputs.outputs:
            expected = self._reference(inputs, copies)
            inputs = replace(inputs, outputs=tuple(expected))
        chip = self._build.chip(inputs)
        self._device.prepare(chip)
        fresh = self._saved_outputs(inputs)
        for repeat in range(self._job.repeat):
            if repeat:
                _restore(inputs, fresh)
            self._phase("run", repeat=repeat + 1)
            try:
                report = self._device.run(
                    chip,
                    *inputs.values,
                    config=self._config,
                    accesses=self._needs_log(repeat),
                    trace=self._trace_level(repeat),
                    dump=False if self._job.dump is None else self._job.dump,
                )
                self._dumps |= {path.parent for path in report.dumps}
            finally:
                if self._device.last_trace is not None:
                    self._traces.append(self._device.last_trace)
            self._add_run(report)
            self._save_log(report)
            if self.recorder is not None:
                self.recorder.ran(inputs, self._golden)
            if references:
                if expected is None:
                    expected = self._reference(inputs, copies)
                self._compare(inputs, expected)
            if self._report.errors:
                if expected is not None and self._job.explain and insight.is_installed():
                    if self._golden.has_intermediates:
                        self._explain_intermediates(inputs, fresh)
                    self._explain(chip, inputs, fresh, expected)
                return

    def _explain(
        self, chip: ChipCallable, inputs: Inputs, fresh: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        """Run once more on the same inputs, and add a note about the wrong output to its error."""
        _restore(inputs, fresh)
        self._phase("explain")
        log = self._device.run(chip, *inputs.values, accesses=True).accesses
        if log is None:
            return
        again = [output for output in self._compared(inputs, expected) if output.mismatches]
        wrong = next(output for output in self._report.outputs if output.mismatches)
        if not log.has_accesses:
            _restore(inputs, fresh)
            try:
                log = self._measured(inputs).accesses
            except PtoError as error:
                self._report.errors[0].add_note(insight.not_measured(self._report.runtime, error))
                return
            assert log is not None, "the runtime keeps a log"
        has_seed = self._job.seed is not None or self._job.seeds is not None
        if not again:
            note = insight.explain_unsteady(log, has_seed=has_seed)
        else:
            note = insight.explain_wrong(log, wrong, inputs.array(wrong.name).itemsize)
        self._report.errors[0].add_note(note)

    def _explain_intermediates(self, inputs: Inputs, fresh: dict[str, Any]) -> None:
        """Run once more with measured kernels, and name the first task whose output is wrong."""
        _restore(inputs, fresh)
        self._phase("intermediates")
        copies = {tensor.name: tensor.copied() for tensor in inputs.tensors}
        expected = self._golden.intermediates(copies, self._name)
        try:
            log = self._measured(inputs, written=True).accesses
        except PtoError as error:
            note = f"the intermediates are not known: their run failed: {error}"
        else:
            assert log is not None, "a runtime that can be measured keeps a log"
            judge = partial(self._golden.compare, "intermediate")
            note = insight.explain_intermediates(log, expected, judge)
        self._report.errors[0].add_note(note)

    def _measured(self, inputs: Inputs, *, written: bool = False) -> RunReport:
        """Run once with kernels that report their accesses."""
        with self._measuring() as (build, device):
            chip = build.chip(inputs)
            return device.run(chip, *inputs.values, accesses=True, written=written)

    def _trace_level(self, repeat: int) -> int | None:
        """Return the level of the trace of a run; the times of kernels need only the first run."""
        needs_times = self._job.kernels and repeat == 0 and self._device.tracing.can_trace
        needs_times = needs_times and insight.is_installed()
        counts = self._config is not None and self._config.enable_pmu  # these runs have a trace
        return self._job.trace or (1 if needs_times and not counts else None)

    def _needs_log(self, repeat: int) -> bool:
        """Return whether a run keeps its access log; a trace needs it for the first run only."""
        return self._job.log_folder is not None or (self._job.trace > 0 and repeat == 0)

    def _save_log(self, report: RunReport) -> None:
        if self._job.log_folder is not None and report.accesses is not None:
            report.accesses.save(self._job.log_folder / f"{quote(self._name, safe=' ')}.npz")

    def _write_files(self) -> None:
        """Write the trace of all runs, even of a failed run, and the counters of the last run."""
        if self._traces:
            self._add_kernels()
        prefix = self._job.file_prefix(self._name)
        if prefix is None:
            return
        written = sorted(self._dumps)
        try:
            if self._traces and self._writes_trace:
                written += insight.write_trace(insight.joined(self._traces), prefix)
            if self._job.stats and self._report.statistics:
                written.append(insight.write_statistics(self._report.statistics, prefix))
        except OSError as error:
            self._fail(UsageError(f"a file was not written: {error}; use another --out folder"))
        self._report = replace(self._report, files=tuple(map(str, written)))

    @property
    def _writes_trace(self) -> bool:
        has_failed = self._job.flight_recorder and bool(self._report.errors)
        return self._job.trace > 0 or has_failed

    def _add_kernels(self) -> None:
        whole = insight.joined(self._traces)
        if whole.unit != "ns":
            return
        kernels = tuple(
            KernelTimes(
                name=row.name,
                tasks=row.count,
                total=row.total / 1e9,
                mean=row.mean / 1e9,
                p50=row.p50 / 1e9,
                p99=row.p99 / 1e9,
                max=row.max / 1e9,
                cores=row.cores,
                gb_per_s=row.gb_per_s,
            )
            for row in insight.kernel_rows(whole)
        )
        self._report = replace(self._report, kernels=kernels)

    def _saved_outputs(self, inputs: Inputs) -> dict[str, Any]:
        if self._job.repeat == 1 and (self._job.skip_golden or not self._job.explain):
            return {}
        return {name: inputs.array(name).copy() for name in inputs.outputs}

    def _reference(self, inputs: Inputs, copies: dict[str, Any]) -> dict[str, Any]:
        self._phase("reference")
        started = time.perf_counter()
        expected = self._golden.compute(inputs, copies, self._name)
        self._report = replace(self._report, reference=time.perf_counter() - started)
        return expected

    def _compare(self, inputs: Inputs, expected: dict[str, Any]) -> None:
        self._phase("compare")
        outputs = self._compared(inputs, expected)
        self._report = replace(self._report, outputs=outputs, compared=True)
        for output in outputs:
            if output.mismatches:
                error = mismatch_error(output)
                for warning in self._build.precision_warnings:
                    error.add_note(warning)
                self._fail(error)

    def _compared(self, inputs: Inputs, expected: dict[str, Any]) -> tuple[OutputReport, ...]:
        return tuple(
            self._golden.compare(name, inputs.array(name), array)
            for name, array in expected.items()
        )

    def _add_run(self, run: RunReport) -> None:
        times = RunTimes(run.build_ns / 1e9, run.run_ns / 1e9, run.copy_ns / 1e9)
        repeats = (*self._report.repeats, times)
        best = min(repeats, key=lambda one: one.build + one.run + one.copy)
        self._report = replace(
            self._report,
            build=best.build,
            run=best.run,
            copy=best.copy,
            repeats=repeats,
            tasks=run.tasks,
            cores=_shares(run),
            copies=Copies(run.copies_in, run.copies_out, run.bytes_in, run.bytes_out),
            peak_bytes=run.peak_bytes,
            trace_hash=f"{run.trace_hash:016x}" if run.trace_hash else None,
            statistics=dict(run.statistics),
        )

    def _fail(self, error: PtoError) -> None:
        self._report = replace(self._report, errors=(*self._report.errors, error))

    def _phase(self, phase: str, repeat: int = 0) -> None:
        self._emit("phase", phase=phase, repeat=repeat, repeats=self._job.repeat)


@contextlib.contextmanager
def _as_pto_errors() -> Iterator[None]:
    """Convert exceptions to PtoErrors, with the traceback of the user's Python code as a note."""
    try:
        yield
    except UsageError:
        raise
    except PtoError as error:
        if error.__cause__ is not None and not hasattr(error, "__notes__"):
            error.add_note(user_traceback(error.__cause__))
        raise
    except Exception as error:
        trace = user_traceback(error)
        what = f"{type(error).__name__}: {error}"
        wrapped: PtoError = InternalError(what)
        if trace:
            wrapped = OrchestrationError(f"the Python orchestration raised {what}")
        wrapped.add_note(trace or traceback.format_exc())
        raise wrapped from error


def _restore(inputs: Inputs, fresh: Mapping[str, Any]) -> None:
    """Give the outputs the values that they had before the first run."""
    for name, array in fresh.items():
        np.copyto(inputs.array(name), array)


def _shares(run: RunReport) -> tuple[CoreShare, ...]:
    shares = []
    for core_type in dict.fromkeys(core for core, _, _ in run.cores):
        cores = [(tasks, busy_ns) for kind, tasks, busy_ns in run.cores if kind == core_type]
        span_ns = max(run.run_ns, 1) * len(cores)
        shares.append(
            CoreShare(
                core_type=core_type,
                total=len(cores),
                used=sum(tasks > 0 for tasks, _ in cores),
                tasks=sum(tasks for tasks, _ in cores),
                busy=min(sum(busy_ns for _, busy_ns in cores) / span_ns, 1.0),
                dispatches=tuple(tasks for tasks, _ in cores),
            )
        )
    return tuple(shares)


class Build:
    """The kernels and the orchestration of a case, built once for all its cases."""

    def __init__(
        self,
        toolchain: Toolchain,
        kernel_config: KernelConfig,
        backend: Backend,
        runtime: Runtime,
        options: Sequence[str] = (),
    ) -> None:
        """Build all sources in parallel, with ``options``; raises CompileError or UsageError."""
        entry = kernel_config.orchestration(runtime.name)
        kernels = kernel_config.kernels(runtime.name)
        python = [kernel for kernel in kernels if kernel.is_python]
        compiled = [kernel for kernel in kernels if not kernel.is_python]
        self.children = {kernel.func_id: _python_kernel(kernel) for kernel in python}
        interface = None
        if not entry.is_python:
            interface = program_interface(runtime, entry.source, entry.api)
        self.api = interface.name if interface else None
        requests = [
            _kernel_request(toolchain, kernel, backend, runtime, self.api, options)
            for kernel in compiled
        ]
        if interface:
            build = interface.orchestration
            recipe = orchestration_recipe(backend, runtime)
            requests.append(
                toolchain.orchestration(entry.source, entry.function, build, recipe, options)
            )
        paths = toolchain.build_many(requests)
        self.artefacts = list(zip(requests, paths, strict=True))
        self.precision_warnings = tuple(toolchain.precision_warnings)
        for kernel, path in zip(compiled, paths, strict=False):
            self.children[kernel.func_id] = CoreCallable(
                path, kernel.core_type, kernel.signature, kernel.name
            )
        self._entry = entry
        self._orchestration: Path | Callable[..., Any] = (
            _function(entry.source, entry.function) if entry.is_python else paths[-1]
        )

    @property
    def kernel_names(self) -> dict[int, str]:
        """The name of each kernel by its ``func_id``."""
        return {func_id: child.name for func_id, child in self.children.items()}

    def chip(self, inputs: Inputs) -> ChipCallable:
        """Return the callable for these inputs; outputs without declared direction are INOUT."""
        return ChipCallable(
            self._orchestration,
            self.children,
            self._signature(inputs),
            name=self._entry.function or self._entry.source.stem,
            argument_names=[argument.name for argument in inputs.arguments],
        )

    def _signature(self, inputs: Inputs) -> Iterable[Any] | None:
        if self._entry.signature is not None:
            signature: Iterable[Any] = self._entry.signature
            return signature
        if callable(self._orchestration) and any(
            direction is not Direction.UNSPECIFIED
            for direction in ChipCallable(self._orchestration).directions()[0]
        ):
            return None
        return [
            "inout" if argument.name in inputs.outputs else "in"
            for argument in inputs.arguments
            if isinstance(argument, TensorArgument)
        ]


def _kernel_request(
    toolchain: Toolchain,
    kernel: KernelEntry,
    backend: Backend,
    runtime: Runtime,
    api: str | None,
    options: Sequence[str],
) -> BuildRequest:
    interface = program_interface(runtime, kernel.source, default=api)
    return toolchain.kernel(
        kernel.source,
        kernel.core_type,
        recipe_of(backend, kernel.core_type),
        (*kernel.include_dirs, *interface.kernel_include_dirs),
        options,
    )


def _python_kernel(kernel: KernelEntry) -> CoreCallable:
    found = _function(kernel.source, kernel.function)
    if not isinstance(found, CoreCallable):
        return CoreCallable(found, kernel.core_type, kernel.signature, kernel.name)
    if found.core_type.name.lower() != kernel.core_type:
        raise UsageError(
            f"kernel {kernel.name!r} has the core type {found.core_type.name.lower()} in "
            f"{kernel.source}, but {kernel.core_type} in KERNELS; use the same type in both",
            name="core_type",
            value=kernel.core_type,
            expected=found.core_type.name.lower(),
        )
    return found


def _function(source: Path, name: str | None) -> Any:
    assert name is not None, "checked when the file was read"
    found = required(load_module(source), name, f"def {name}(...)")
    if not callable(found):
        raise UsageError(
            f"{source}: {name} is {type(found).__name__}; expected a function",
            name="function_name",
            value=name,
        )
    return found


# The diagnostics of CallConfig, which a case or the user sets like settings.
_DIAGNOSTICS = frozenset(
    field.name
    for field in fields(CallConfig)
    if field.name.startswith("enable_") or field.name == "output_prefix"
)


def without_diagnostics(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without the diagnostics.

    Raises UsageError for an invalid value.
    """
    given = {name: _value(name, values[name]) for name in _DIAGNOSTICS & values.keys()}
    CallConfig(**given).pack()
    return {name: value for name, value in values.items() if name not in _DIAGNOSTICS}


def texts_without_diagnostics(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Apply :func:`without_diagnostics` to ``key=value`` texts."""
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    without_diagnostics(pairs)
    return tuple(text for text in texts if text.partition("=")[0].strip() not in _DIAGNOSTICS)


def diagnostics_of(
    settings: Mapping[str, Any], texts: tuple[str, ...], case: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the diagnostics of a case as arguments of CallConfig; arguments win over ``case``."""
    pairs = dict(text.split("=", 1) for text in texts if "=" in text)
    given = {**case, **pairs, **settings}
    return {name: _value(name, given[name]) for name in _DIAGNOSTICS & given.keys()}


def _value(name: str, raw: Any) -> Any:
    if name == "output_prefix" or not isinstance(raw, str):
        return raw
    try:
        return int(raw)
    except ValueError:
        raise UsageError(
            f"{name} is {raw!r}; expected a number", name=name, value=raw, expected="a number"
        ) from None
