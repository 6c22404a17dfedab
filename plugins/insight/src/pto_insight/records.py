"""Records: one file with the program, inputs, settings and outputs of a run of a case.

The process that runs a case has one recorder. :class:`Recording` writes the file, once before the
run and once after it, so that a run whose process dies leaves a record without outputs.
:class:`Rerun` runs such a file again: it restores settings and inputs, and compares the rest. Both
have the same methods, in the order of the calls of :mod:`pto_core.cases`.

The file is an archive (:mod:`pto_insight.graphs.archive`) with the arrays ``files/NAME``,
``inputs/NAME`` and ``outputs/NAME``.
"""

from __future__ import annotations

import contextlib
import os
import platform
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import packages_distributions, version
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pto_core import plugins
from pto_core.cases.golden import (
    Golden,
    Inputs,
    ScalarArgument,
    TensorArgument,
    as_array,
    mismatch_error,
)
from pto_core.cases.job import Job
from pto_core.cases.kernel_config import KernelConfig
from pto_core.cases.report import CaseReport, to_plain
from pto_core.config import Config, Setting, as_text
from pto_core.errors import PtoError, UsageError
from pto_core.kernels import DataType
from pto_core.kernels.callables import file_digest
from pto_core.toolchain import BuildRequest, Toolchain, candidates
from pto_insight.dumps.task_dump import stored_type
from pto_insight.graphs.archive import Archive, read_archive, refusing_damage, write_archive

_FORMAT = "run record"
_VERSION = 1
_UNFINISHED = "its process died"
_PHASES = ("files", "inputs", "outputs")
# Settings of the host, which do not change results. Others are those of the record.
_OF_HOST = ("jobs", "log_level", "log_format", "cache_limit_bytes", "backend", "runtime")
_DIGEST_CHARACTERS = 16

Artefacts = Sequence[tuple[BuildRequest, Path]]


@dataclass(frozen=True)
class RunRecord:
    """The content of a file.

    ``golden`` and ``kernel_config`` are names in ``files``. ``root``: the folder of the files in
    the recorded run. ``import_folders``: names of the folders in it from which Python imported
    modules. ``settings``: value and origin of each setting. ``environment``, ``build``: versions
    and digests by name. ``layouts``: type and shape of each argument. ``ending``: the first error
    of the run, or an empty text. Arrays of a type that NumPy does not have are stored as bits.
    """

    case: str
    golden: str
    kernel_config: str
    root: str
    import_folders: list[str]
    backend: str
    runtime: str
    seed: int | None
    skip_golden: bool
    settings: dict[str, tuple[str | None, str]]
    environment: dict[str, str]
    build: dict[str, str]
    layouts: dict[str, str]
    scalars: dict[str, Any]
    ending: str
    files: dict[str, NDArray[Any]] = field(repr=False)
    inputs: dict[str, NDArray[Any]] = field(repr=False)
    outputs: dict[str, NDArray[Any]] = field(repr=False)

    def write(self, path: Path) -> None:
        """Write the file, or leave it as it was. Raises UsageError."""
        arrays = {
            f"{phase}/{name}": array
            for phase in _PHASES
            for name, array in getattr(self, phase).items()
        }
        plain = to_plain(replace(self, scalars={}, files={}, inputs={}, outputs={}))
        content = {**plain, "scalars": self.scalars}
        try:
            write_archive(path, Archive(f"{_FORMAT} {_VERSION}", content, arrays))
        except (OSError, UnicodeError) as error:
            raise UsageError(
                f"the record {path} was not written: {getattr(error, 'strerror', None) or error}; "
                "free some space, or name another file with --output",
                name="output",
                value=str(path),
            ) from error

    @staticmethod
    def read(path: Path) -> RunRecord:
        """Read a file. Raises UsageError for another file, and OSError."""
        what, advice = "a record of a run", "write one with pto record"
        archive = read_archive(path, what, advice)
        with refusing_damage(path, what, advice):
            kind, _, number = archive.kind.rpartition(" ")
            if kind != _FORMAT:
                raise ValueError(f"it is of the kind {archive.kind!r}")
            if int(number) != _VERSION:
                raise _other_version(path, int(number), archive.content)
            phases: dict[str, dict[str, Any]] = {phase: {} for phase in _PHASES}
            for name, array in archive.arrays.items():
                phase, _, rest = name.partition("/")
                phases[phase][rest] = array
            record = RunRecord(**{**archive.content, **phases})
            for name in (*record.files, record.golden, record.kernel_config):
                path_of = PurePosixPath(name)
                is_outside = path_of.is_absolute() or ".." in path_of.parts
                if not path_of.parts or is_outside or name not in record.files:
                    raise ValueError(f"it names the file {name!r}")
            return record


def _other_version(path: Path, number: int, content: Mapping[str, Any]) -> UsageError:
    writer = dict(content.get("environment", {})).get("ptorun-core", "another version")
    return UsageError(
        f"{path} has version {number} of the format of records, written by ptorun-core {writer}; "
        f"this version reads {_VERSION}: install that version of ptorun-core, or record the case "
        "again",
        name="record",
        value=str(path),
    )


@contextlib.contextmanager
def unpacked_record(path: Path) -> Iterator[tuple[RunRecord, Path]]:
    """Write the files of a record to a temporary folder. Raises UsageError."""
    with contextlib.ExitStack() as stack:
        try:
            record = RunRecord.read(path)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pto-record-"))
            for file, content in record.files.items():
                target = Path(folder, file)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.tobytes())
        except OSError as error:
            raise UsageError(
                f"the record {path} cannot be read or unpacked: {error}; check the file, and the "
                "free space of the folder of temporary files",
                name="record",
                value=str(path),
            ) from error
        yield record, Path(folder)


def recorder(job: Job) -> Recording | Rerun:
    """Return the recorder of a job that records a run, or runs a record again."""
    return Rerun(job) if job.record is None else Recording(job)


class Recording:
    """The recorder that writes a record."""

    options: tuple[str, ...] = ()
    """The options that are added to those of each source."""

    def __init__(self, job: Job) -> None:
        assert job.record is not None, "the caller has checked this"
        self._job = job
        self._path = job.record
        self._opened: set[str] = set()
        self._facts: dict[str, Any] = {}
        self._files: set[str] = set()
        self._outputs: dict[str, NDArray[Any]] = {}
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note the files that Python opens to read them."""
        if (
            event == "open"
            and isinstance(arguments[0], str | Path)
            and not (arguments[2] & os.O_ACCMODE)
        ):
            self._opened.add(os.path.abspath(arguments[0]))

    def configured(self, config: Config, runtime: str, kernel_config: KernelConfig) -> Config:
        """Return the settings of the run. ``runtime``: the variant that the user has chosen."""
        self._facts = {
            "backend": config["backend"],
            "runtime": runtime,
            "environment": _environment(config),
            "settings": {one.key: (_text(one), one.origin) for one in _recorded(config)},
        }
        self._kernel_config = kernel_config
        return config

    def built(self, toolchain: Toolchain, config: Config, artefacts: Artefacts) -> None:
        """Note the libraries of the case, and the files that their builds read."""
        self._facts["build"] = _build(self._job, config, artefacts)
        kernels = [one for many in self._kernel_config.kernel_lists.values() for one in many]
        self._add(*(one.source for one in kernels))
        self._add(*(one.source for one in self._kernel_config.orchestrations.values()))
        stated = {folder for one in kernels for folder in one.include_dirs}
        for request, _ in artefacts:
            own = {request.source.parent, *stated}
            installed = [str(folder) for folder in request.include_dirs if folder not in own]
            read = map(os.path.normpath, toolchain.files_read(request))
            self._add(*(path for path in read if not _is_below(path, installed)))

    def restored(self, inputs: Inputs, case: str) -> Inputs:
        """Keep the inputs, and write the record without outputs. Raises UsageError."""
        self._facts |= {
            "case": case,
            "seed": self._job.seed,
            "skip_golden": self._job.skip_golden,
            "layouts": _layouts(inputs),
            "scalars": {
                one.name: _plain(one.value)
                for one in inputs.arguments
                if isinstance(one, ScalarArgument)
            },
            "inputs": {one.name: _stored(one.array).copy() for one in inputs.tensors},
        }
        self._write({}, _UNFINISHED)
        return inputs

    def ran(self, inputs: Inputs, golden: Golden) -> None:
        """Keep the outputs."""
        self._outputs = {name: _stored(inputs.array(name)).copy() for name in inputs.outputs}

    def ended(self, report: CaseReport) -> CaseReport:
        """Write the whole record, if the run has started. Raises UsageError."""
        if "inputs" in self._facts:
            self._write(self._outputs, report.errors[0].message if report.errors else "")
        return report

    def _add(self, *paths: str | Path) -> None:
        self._files |= {os.path.normpath(path) for path in paths}

    def _write(self, outputs: dict[str, NDArray[Any]], ending: str) -> None:
        golden, kernel_config = map(str, (self._job.golden, self._job.kernel_config))
        modules = _modules()
        self._add(golden, kernel_config, *modules, *self._opened_in_case())
        imported = [os.path.abspath(path) for path in sys.path]
        imported = [path for path in imported if path in modules.values()]
        root = os.path.commonpath([*map(os.path.dirname, self._files), *imported])
        names = {file: os.path.relpath(file, root) for file in sorted(self._files)}
        record = RunRecord(
            golden=names[os.path.normpath(golden)],
            kernel_config=names[os.path.normpath(kernel_config)],
            root=root,
            import_folders=[os.path.relpath(path, root) for path in imported],
            ending=ending,
            files={name: np.fromfile(file, "u1") for file, name in names.items()},
            outputs=outputs,
            **self._facts,
        )
        try:
            record.write(self._path)
        except UsageError:
            self._path.unlink(missing_ok=True)  # the record of this run without outputs
            raise

    def _opened_in_case(self) -> list[str]:
        folders = [str(self._job.golden.parent), str(self._job.kernel_config.parent)]
        opened = [one for one in self._opened.copy() if not one.endswith(".pyc")]
        return [one for one in opened if _is_below(one, folders) and os.path.isfile(one)]


class Rerun:
    """The recorder that runs a record again."""

    def __init__(self, job: Job) -> None:
        assert job.recorded is not None, "the caller has checked this"
        self._job = job
        self._record = RunRecord.read(job.recorded)
        folder = str(job.golden).removesuffix(f"/{self._record.golden}")
        sys.path[:0] = [os.path.join(folder, name) for name in self._record.import_folders]
        self.options = (f"-ffile-prefix-map={folder}={self._record.root.rstrip('/')}",)
        self._lines: list[str] = []
        self._outputs: dict[str, str] = {}
        self._errors: dict[str, PtoError] = {}

    def configured(self, config: Config, runtime: str, kernel_config: KernelConfig) -> Config:
        """Return the recorded settings, except those that the user states for this run."""
        wanted = dict(self._record.settings)
        settings = []
        self._differ(self._record.environment, _environment(config))
        for one in config.settings():
            text, _ = wanted.pop(one.key, (_text(one), ""))
            if text != _text(one) and one.origin in ("argument", "--set"):
                self._differ({one.key: str(text)}, {one.key: f"{_text(one)} ({one.origin})"})
            elif text != _text(one):
                try:
                    value = None if text is None else one.option.parse(text)
                    one = replace(one, value=value, origin="record")
                except ValueError:
                    self._differ({one.key: str(text)}, {one.key: _text(one) or "none"})
            settings.append(one)
        unknown = {key: str(text) for key, (text, origin) in wanted.items() if origin != "default"}
        self._differ(unknown, {})
        return Config(settings, config.warnings)

    def built(self, toolchain: Toolchain, config: Config, artefacts: Artefacts) -> None:
        """Compare the libraries of the case with the recorded ones."""
        self._differ(self._record.build, _build(self._job, config, artefacts))
        if not self._lines:
            self._say("versions, settings and artefacts are those of the record")
        if self._record.ending:
            self._say(f"the recorded run failed: {self._record.ending}")

    def restored(self, inputs: Inputs, case: str) -> Inputs:
        """Return the recorded inputs, in the memory of ``inputs``. Raises UsageError."""
        if _layouts(inputs) != self._record.layouts:
            raise UsageError(
                f"generate_inputs returns {_layouts(inputs)} in this run, and the record has "
                f"{self._record.layouts}; use the version of the libraries of the record",
                name="record",
                value=str(self._job.recorded),
            )
        return replace(inputs, arguments=tuple(map(self._restored, inputs.arguments)))

    def _restored(self, one: TensorArgument | ScalarArgument) -> TensorArgument | ScalarArgument:
        if isinstance(one, ScalarArgument):
            recorded = self._record.scalars[one.name]
            if repr(_plain(one.value)) == repr(recorded):  # NaN does not equal itself
                return one
            restored: TensorArgument | ScalarArgument
            restored = ScalarArgument(one.name, type(one.value)(recorded))
        else:
            stored = self._record.inputs[one.name]
            if stored.tobytes() == _stored(one.array).tobytes():
                return one
            array = stored.view(one.array.dtype)
            restored = TensorArgument(one.name, array, array)
            views = [view for view in (as_array(one.value), one.array) if view is not None]
            if all(view.flags.writeable for view in views):
                restored = one
                for view in views:
                    np.copyto(view, array)
        self._say(f"{one.name}: generate_inputs returns other values; the recorded ones are used")
        return restored

    def ran(self, inputs: Inputs, golden: Golden) -> None:
        """Compare the outputs with the recorded ones, byte by byte and by the rule of the case."""
        for name, stored in self._record.outputs.items():
            array = inputs.array(name)
            if stored.tobytes() == _stored(array).tobytes():
                self._outputs[name] = "equal to the record byte for byte"
                continue
            found = golden.compare(name, array, stored.view(array.dtype))
            self._outputs[name] = f"largest difference from the record {found.max_error:g}"
            if found.mismatches:
                self._errors[name] = mismatch_error(found, "differs from the record")

    def ended(self, report: CaseReport) -> CaseReport:
        """Add the differences and their errors to the report."""
        lines = [*self._lines, *(f"{name}: {text}" for name, text in self._outputs.items())]
        errors = (*report.errors, *self._errors.values())
        return replace(report, record=tuple(lines), errors=errors)

    def _differ(self, there: Mapping[str, str], here: Mapping[str, str]) -> None:
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                was, now = there.get(name, "none"), here.get(name, "none")
                self._say(f"{name}: {was} in the record, {now} here")

    def _say(self, line: str) -> None:
        self._lines.append(line)
        sys.stdout.write(f"record: {line}\n")


def _environment(config: Config) -> dict[str, str]:
    used = {family: config[family] for family in ("backend", "runtime")}
    found = [plugins.find(*one) for one in (*used.items(), ("insight", "insight"))]
    libraries = {name: version(name) for name in ("ptorun-core", "numpy")}
    return {
        **libraries,
        **{one.distribution: one.version for one in found},
        **used,
        "Python": platform.python_version(),
        "machine": platform.machine(),
        "C library": " ".join(platform.libc_ver()),
    }


def _build(job: Job, config: Config, artefacts: Artefacts) -> dict[str, str]:
    """Return the compilers and a digest of each library by the name of its source."""
    found: dict[str, str] = {}
    for request, library in artefacts:
        able = (
            one
            for one in candidates(config, request.compilers)
            if one.spelling(request.standard) is not None
        )
        compiler = next(able)
        name = os.path.relpath(request.source, job.kernel_config.parent)
        found[f"compiler of {request.kind}s"] = f"{compiler.family} {compiler.version}"
        digest = file_digest(library).hex()[:_DIGEST_CHARACTERS]
        found[f"artefact {name}"] = " ".join([*found.get(f"artefact {name}", "").split(), digest])
    return found


def _recorded(config: Config) -> Iterator[Setting]:
    """Yield the settings that can change results."""
    for one in config.settings():
        is_path = isinstance(one.value, Path)
        if not (one.option.is_of_host or is_path or one.key in _OF_HOST):
            yield one


def _text(setting: Setting) -> str | None:
    return None if setting.value is None else as_text(setting.key, setting.value, setting.origin)


def _layouts(inputs: Inputs) -> dict[str, str]:
    return {
        one.name: "scalar"
        if isinstance(one, ScalarArgument)
        else f"{one.array.dtype} {list(one.array.shape)}"
        for one in inputs.arguments
    }


def _stored(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(stored_type(DataType.of(array.dtype)))


def _plain(value: Any) -> Any:
    """Return a number of NumPy or ctypes as a number of Python."""
    return value.item() if isinstance(value, np.generic) else getattr(value, "value", value)


def _modules() -> dict[str, str]:
    """Return the files of the imported modules that no distribution installed.

    The value is the folder that contains the module, or the package to which it belongs.
    """
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    installed = packages_distributions()
    found = {}
    for name, module in tuple(sys.modules.items()):
        file = os.path.abspath(getattr(module, "__file__", None) or "")
        if name.partition(".")[0] in installed or _is_below(file, folders):
            continue
        if os.path.isfile(file):
            depth = name.count(".") + (os.path.basename(file) == "__init__.py")
            above = Path(file).parents
            found[file] = str(above[min(depth, len(above) - 1)])
    return found


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(f"{os.path.normpath(folder)}/") for folder in folders)
