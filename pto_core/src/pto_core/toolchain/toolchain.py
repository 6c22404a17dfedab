"""The toolchain: converts C++ sources to shared libraries, each only once."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pto_core import log
from pto_core.config import Config, child_environment
from pto_core.errors import UnsupportedError, UsageError
from pto_core.errors.limits import start_thread
from pto_core.interfaces import (
    Backend,
    BuildRecipe,
    DeviceBackend,
    DeviceBuild,
    OrchestrationBuild,
    ProgramInterface,
    Runtime,
)
from pto_core.toolchain.builder import Builder, Cancelled, precision_warning
from pto_core.toolchain.cache import ArtefactCache
from pto_core.toolchain.children import ProcessGroup
from pto_core.toolchain.compilers import BuildRequest, Compiler, candidates
from pto_core.toolchain.diagnosis import (
    default_entry_warning,
    no_compiler_error,
    no_space_error,
)

KERNEL_ENTRY = "kernel_entry"
RUNTIME_ENTRY = "pto_runtime_entry"
_KERNEL_STANDARD = "c++23"
_HOST = BuildRecipe()

# Variables that affect what a compiler reads or writes, in addition to its command line.
_COMPILER_VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH",
)


@dataclass(frozen=True)
class BuildEvent:
    """Progress of a build: ``source`` is ``cached``, ``started``, ``built`` or ``failed``.

    ``done`` of ``total`` requests are finished; ``seconds`` is the duration of this request.
    """

    source: Path
    state: str
    done: int
    total: int
    seconds: float = 0.0


request_of: dict[Path, BuildRequest] = {}
"""The request of each artefact that this process has built or found in the cache."""


class Toolchain:
    """A parallel builder of kernels and orchestrations with a cache, ``config["cache_dir"]``.

    ``progress`` is called on the caller's thread. ``environment`` is added to the environment of
    compilers. If a call raises, even KeyboardInterrupt, no compiler and no partial file is left
    behind.
    """

    def __init__(
        self,
        config: Config,
        progress: Callable[[BuildEvent], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._progress = progress or (lambda event: None)
        self._environment = child_environment(environment)
        self._compilers: dict[tuple[tuple[str, ...], str], list[Compiler]] = {}
        self.precision_warnings: list[str] = []
        """A warning for each kernel built so far that computes bfloat16 in half precision."""

    def build_kernel(
        self,
        source: Path,
        core_type: str,
        recipe: BuildRecipe,
        include_dirs: Sequence[Path] = (),
    ) -> Path:
        """Build one kernel for ``core_type`` ("aic" or "aiv"); raises CompileError."""
        return self.build_many([self.kernel(source, core_type, recipe, include_dirs)])[0]

    def kernel(
        self,
        source: Path,
        core_type: str,
        recipe: BuildRecipe,
        include_dirs: Sequence[Path] = (),
        options: Sequence[str] = (),
    ) -> BuildRequest:
        """Return the request for one kernel, for :meth:`build_many`.

        ``options``: those of the source, added to the flags.
        """
        root = self._config["pto_isa_root"]
        tile_library = (root / "include", root / "include" / "pto") if root else ()
        return self._request(
            "kernel",
            _existing(source, f"{core_type} kernel"),
            recipe,
            standard=_KERNEL_STANDARD,
            options=(*options, *self._measured_flags(recipe)),
            include_dirs=(*tile_library, *include_dirs),
            required_symbol=KERNEL_ENTRY,
            tile_library=root,
        )

    def _measured_flags(self, recipe: BuildRecipe) -> tuple[str, ...]:
        if self._config["measure"] and not recipe.measured_flags:
            raise UnsupportedError(
                f"the backend {self._config['backend']!r} cannot measure the accesses of kernels; "
                "omit measure",
                name="measure",
                value=True,
            )
        return recipe.measured_flags if self._config["measure"] else ()

    def orchestration(
        self,
        source: Path,
        entry: str | None,
        build: OrchestrationBuild,
        recipe: BuildRecipe = _HOST,
        options: Sequence[str] = (),
    ) -> BuildRequest:
        """Return the request for one orchestration, for :meth:`build_many`.

        ``build`` is of the runtime variant, ``recipe`` of the backend. ``options``: those of the
        source, added to the flags.
        """
        path = _existing(source, "orchestration")
        function = entry or build.default_entry
        if not function or not function.isidentifier():
            raise UsageError(
                f"the orchestration {path} needs the name of its function, got {function!r}; "
                "set function_name in ORCHESTRATION",
                name="function_name",
                value=function,
                expected="the name of a C++ function",
            )
        if '"' in str(path):
            raise UsageError(
                f"the path {str(path)!r} of the orchestration has a character that #include cannot "
                "name; rename the file or its folder",
                name="source",
                value=str(path),
                expected='a path without "',
            )
        request = self._request(
            "orchestration",
            path,
            recipe,
            standard=build.standard,
            flags=build.flags,
            options=options,
            include_dirs=(path.parent, *build.include_dirs),
            unit=_unit(function, path, build),
            entry=function,
        )
        if build.default_entry is None or function == build.default_entry:
            return request
        # The comment makes the key differ from the key of a request that names the default entry.
        unit = f"// instead of {function}\n{_unit(build.default_entry, path, build)}"
        fallback = replace(request, unit=unit, entry=build.default_entry)
        return replace(request, fallback=fallback)

    def runtime(
        self, build: DeviceBuild, recipe: BuildRecipe, entry: str = RUNTIME_ENTRY
    ) -> BuildRequest:
        """Return the request for the library of a runtime variant, for :meth:`build_many`.

        ``entry``: the function that the library must export.
        """
        return self._request(
            "runtime",
            _existing(build.sources[0], "runtime variant"),
            recipe,
            standard=build.standard,
            flags=build.flags,
            include_dirs=build.include_dirs,
            unit="".join(f'#include "{source}"\n' for source in build.sources),
            required_symbol=entry,
        )

    def _request(
        self,
        kind: str,
        source: Path,
        recipe: BuildRecipe,
        *,
        standard: str,
        flags: Sequence[str] = (),
        options: Sequence[str] = (),
        **fields: Any,
    ) -> BuildRequest:
        """Return a request with the flags of the variant, then the recipe, then the source."""
        macros = (f"-D{name}" for name in recipe.definitions)
        joined = (*flags, *recipe.flags, *macros, *options)
        return BuildRequest(
            kind=kind,
            source=source,
            standard=recipe.standard or standard,
            flags=joined if recipe.compilers else _shared(joined),
            compilers=recipe.compilers,
            steps=recipe.steps,
            keeps_attributes=recipe.keeps_attributes,
            ceilings=tuple(sorted(recipe.ceilings.items())),
            environment=self._compiler_variables(),
            **fields,
        )

    def build_many(self, requests: Sequence[BuildRequest]) -> list[Path]:
        """Return the artefact of each request; build missing ones, ``jobs`` at a time.

        All requests are tried. Then the failure of the first failed request in the list is raised.
        Files of killed builders are removed from the cache, even if no artefact is missing.
        """
        ArtefactCache(self._config["cache_dir"]).sweep()
        results: list[Path | None] = [self._lookup(request) for request in requests]
        missing = [index for index, found in enumerate(results) if found is None]
        done = 0
        for request, found in zip(requests, results, strict=True):
            if found is not None:
                done += 1
                self._progress(BuildEvent(request.source, "cached", done, len(requests)))
        if missing:
            built = self._build_missing([requests[index] for index in missing], done)
            for index, path in zip(missing, built, strict=True):
                results[index] = path
        built = [path for path in results if path is not None]
        request_of.update(zip(built, requests, strict=True))
        for request, path in zip(requests, built, strict=True):
            self._warn(request, path)
        return built

    def files_read(self, request: BuildRequest) -> list[Path]:
        """Return the files that a build reads, without headers in folders of the system.

        Paths are not normalised, because ``..`` after a symbolic link has another meaning. Raises
        CompileError.
        """
        cache_dir = self._prepared_cache()
        compilers = self._all_compilers_for(request)
        with ProcessGroup() as group:
            builder = Builder(cache_dir, group, self._environment, threading.Event())
            return builder.files_read(request, compilers)

    def _lookup(self, request: BuildRequest) -> Path | None:
        cache = ArtefactCache(self._config["cache_dir"])
        compiler = self._compilers_for(request)[0]
        found = cache.lookup(request.key(compiler))
        if found is None and request.fallback is not None:
            found = cache.lookup(request.fallback.key(compiler))
        return found

    def _warn(self, request: BuildRequest, built: Path) -> None:
        """Log a warning if the default entry was built, or if bfloat16 has half precision."""
        compiler = self._compilers_for(request)[0]
        cache = ArtefactCache(self._config["cache_dir"])
        if request.fallback and cache.produced(request.fallback.key(compiler), built):
            log.get(__name__).warning("orchestration", reason=default_entry_warning(request))
        if request.tile_library is not None:
            reason = precision_warning(request, compiler, cache.files(request.key(compiler)))
            if reason:
                self.precision_warnings.append(reason)
                log.get(__name__).warning("kernel", reason=reason)

    def _compilers_for(self, request: BuildRequest) -> list[Compiler]:
        """Find the first compiler that has the standard. Examine others only if the build fails."""
        wanted = (request.compilers, request.standard)
        if wanted not in self._compilers:
            tried = []
            for compiler in candidates(self._config, request.compilers):
                if compiler.spelling(request.standard) is not None:
                    self._compilers[wanted] = [compiler]
                    break
                tried.append(compiler.name)
            else:
                raise no_compiler_error(request, tried)
        return self._compilers[wanted]

    def _all_compilers_for(self, request: BuildRequest) -> list[Compiler]:
        accepting = (
            compiler
            for compiler in candidates(self._config, request.compilers)
            if compiler.spelling(request.standard) is not None
        )
        by_identity = {compiler.identity: compiler for compiler in accepting}
        return list(by_identity.values())

    def _build_missing(self, requests: Sequence[BuildRequest], done: int) -> list[Path]:
        cache_dir = self._prepared_cache()
        compilers = [self._all_compilers_for(request) for request in requests]
        cancelled = threading.Event()
        with ProcessGroup() as group:
            builder = Builder(cache_dir, group, self._environment, cancelled)
            threads = _BuildThreads(
                builder, list(zip(requests, compilers, strict=True)), self._config["jobs"]
            )
            try:
                return threads.work(self._progress, done)
            finally:
                cancelled.set()
                group.close()
                threads.join()
                self._trim(cache_dir)

    def _prepared_cache(self) -> Path:
        cache_dir: Path = self._config["cache_dir"]
        try:
            ArtefactCache(cache_dir).prepare()
        except OSError as error:
            raise no_space_error(cache_dir, os.strerror(error.errno or 0), None) from error
        return cache_dir

    def _trim(self, cache_dir: Path) -> None:
        limit_bytes = self._config["cache_limit_bytes"]
        if limit_bytes:
            # a failure to trim the cache does not affect the built artefacts
            with contextlib.suppress(OSError):
                ArtefactCache(cache_dir).trim(limit_bytes)

    def _compiler_variables(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (name, self._environment[name])
            for name in _COMPILER_VARIABLES
            if name in self._environment
        )


class _BuildThreads:
    """A pool of threads. Each runs one compiler at a time and reports to the caller's thread."""

    def __init__(
        self, builder: Builder, work: list[tuple[BuildRequest, list[Compiler]]], jobs: int
    ) -> None:
        self._builder = builder
        self._work = work
        self._waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._news: queue.SimpleQueue[tuple[int, Path | Exception | None, float]]
        self._news = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"pto-compile-{index}", daemon=True)
            for index in range(min(jobs, len(work)))
        ]

    def work(self, progress: Callable[[BuildEvent], None], done: int) -> list[Path]:
        """Build everything. At the end, raise the failure of the first failed request in order."""
        total = done + len(self._work)
        results: dict[int, Path | Exception] = {}
        for index in range(len(self._work)):
            self._waiting.put(index)
        for thread in self._threads:
            self._waiting.put(None)
            start_thread(thread)
        while len(results) < len(self._work):
            index, outcome, seconds = self._news.get()
            source = self._work[index][0].source
            if outcome is None:
                progress(BuildEvent(source, "started", done + len(results), total))
                continue
            results[index] = outcome
            state = "built" if isinstance(outcome, Path) else "failed"
            progress(BuildEvent(source, state, done + len(results), total, seconds))
        for index in sorted(results):
            failure = results[index]
            if isinstance(failure, Exception):
                raise failure
        return [path for _, path in sorted(results.items()) if isinstance(path, Path)]

    def join(self) -> None:
        """Wait for the threads to end. Their compilers were killed before."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _serve(self) -> None:
        while (index := self._waiting.get()) is not None:
            started = time.perf_counter()
            self._news.put((index, None, 0.0))
            outcome: Path | Exception
            try:
                outcome = self._builder.build(*self._work[index])
            except Cancelled:
                return
            except Exception as error:  # noqa: BLE001 - carried to the caller's thread
                outcome = error
            self._news.put((index, outcome, time.perf_counter() - started))


def _unit(function: str, source: Path, build: OrchestrationBuild) -> str:
    """Return the text of the translation unit of an orchestration."""
    return (
        f"#define PTO_ORCHESTRATION_ENTRY {function}\n"
        f'#include "{source}"\n#include "{build.wrapper}"\n'
    )


def _shared(flags: tuple[str, ...]) -> tuple[str, ...]:
    needed = tuple(flag for flag in ("-shared", "-fPIC") if flag not in flags)
    return (*needed, "-fdiagnostics-color=never", *flags)


def _existing(source: Path, what: str) -> Path:
    path = source.absolute()
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise UsageError(
            f"the {what}'s source {path} {reason}",
            name="source",
            value=str(source),
            expected="a C++ source file",
        )
    if "\n" in str(path):  # the compiler's list of the files that it read cannot contain it
        raise UsageError(
            f"the path {str(path)!r} of the {what}'s source has a line break; rename the file or "
            "its folder",
            name="source",
            value=str(path),
        )
    return Path(os.path.normpath(path))


def recipe_of(backend: Backend, kind: str) -> BuildRecipe:
    """Return the recipe for ``kind``. Raises UnsupportedError if the backend has none."""
    recipe = backend.build_recipe(kind)
    if recipe is None:
        raise UnsupportedError(
            f"backend {backend.name!r} has no recipe that builds code of the kind {kind!r}; "
            "choose another backend, or pass a binary",
            name="kind",
            value=kind,
        )
    return recipe


def orchestration_recipe(backend: Backend, runtime: Runtime) -> BuildRecipe:
    """Return the recipe for C++ orchestrations of a runtime variant."""
    on_host = "host_orchestration" in runtime.capabilities
    return recipe_of(backend, "host_orchestration" if on_host else "orchestration")


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def program_interface(
    runtime: Runtime, source: Path, stated: str | None = None, default: str | None = None
) -> ProgramInterface:
    """Return the interface of a C++ source: the ``stated`` one, or the first with a mark in it.

    A source without marks has the interface ``default``, or else the first one of the variant.
    Raises UsageError if the variant does not have the stated interface.
    """
    interfaces = {one.name: one for one in runtime.program_interfaces()}
    if stated is None and not source.is_file():
        return interfaces[default or next(iter(interfaces))]  # the build names the missing file
    if stated is None:
        text = _COMMENT.sub(" ", source.read_text("utf-8", "replace"))
        marked = (one for one in interfaces.values() if _has_mark(text, one))
        return next(marked, interfaces[default or next(iter(interfaces))])
    if stated not in interfaces:
        known = ", ".join(interfaces)
        raise UsageError(
            f"the runtime {runtime.name!r} has no interface {stated!r} for C++ programs; it has "
            f"{known}",
            name="api",
            value=stated,
            expected=known,
        )
    return interfaces[stated]


def _has_mark(text: str, interface: ProgramInterface) -> bool:
    return any(re.search(mark, text) for mark in interface.marks)


def runtime_artefacts(
    toolchain: Toolchain, backend: Backend, runtime: Runtime
) -> list[tuple[str, str]]:
    """Build the variant for the devices of the backend; return the kind and path of each artefact.

    Returns an empty list if the backend runs the variant's library in the host process. Raises
    UnsupportedError if the variant runs there only, and CompileError.
    """
    recipe = backend.build_recipe("runtime")
    if recipe is None:
        return []
    build = runtime.device_build()
    if build is None:
        raise UnsupportedError(
            f"backend {backend.name!r} runs the runtime on its device, and the runtime "
            f"{runtime.name!r} runs in the host process only; choose another runtime",
            name="runtime",
            value=runtime.name,
        )
    return [("runtime", str(toolchain.build_many([toolchain.runtime(build, recipe)])[0]))]


def device_options(
    toolchain: Toolchain, backend: Backend, options: Mapping[str, str]
) -> dict[str, str]:
    """Build the libraries of the backend for its devices; return ``options`` with their paths.

    Raises CompileError.
    """
    if not isinstance(backend, DeviceBackend):
        return dict(options)
    libraries = backend.device_libraries(options)
    paths = toolchain.build_many(
        [toolchain.runtime(one.build, one.recipe, one.entry) for one in libraries]
    )
    built = {one.option: str(path) for one, path in zip(libraries, paths, strict=True)}
    return {**options, **built}
