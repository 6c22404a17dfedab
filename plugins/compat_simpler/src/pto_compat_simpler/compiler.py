"""The compiler of published programs, over the toolchain and its cache."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pto_compat_simpler.scene import API
from pto_compat_simpler.task_interface import NAMES, digest_of, runtime_of
from pto_core import plugins
from pto_core.config import load_with_plugins
from pto_core.errors import UsageError
from pto_core.interfaces import ProgramInterface, Runtime
from pto_core.toolchain import Toolchain, orchestration_recipe, program_interface, recipe_of

_DEFAULT_RUNTIME = "tensormap_and_ringbuffer"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(
    r"(?<!static )(?<!inline )\bvoid\s+(\w+)\s*\(\s*const\s+(?:Chip|L2)TaskArgs\s*&\s*\w*\s*\)\s*{"
)

PathLike = str | Path


class KernelCompiler:
    """Compiles kernels and orchestrations for ``platform``, such as ``"a2a3sim"``.

    Programs may derive a class from it. The results are the bytes of shared libraries, for
    ``CoreCallable.build`` and ``ChipCallable.build``. A source is compiled once, because the
    toolchain has a cache. The methods raise CompileError, with the output of the compiler.
    """

    def __init__(self, platform: str = "a2a3sim") -> None:
        self.platform = platform
        self.project_root = Path(__file__).with_name("project")
        """The folder with ``src``: the description of each runtime, and headers."""
        self._backend = plugins.load_backend(platform)

    def get_incore_include_dirs(self) -> list[str]:
        """Return the include folders of kernels."""
        return [str(folder) for folder in incore_include_dirs()]

    def get_orchestration_include_dirs(self, runtime: str) -> list[str]:
        """Return the include folders of orchestrations for a runtime."""
        interface = _interface(plugins.load_runtime(runtime_of(runtime)), Path())
        return [str(folder) for folder in interface.orchestration.include_dirs]

    def compile_incore(
        self,
        source_path: PathLike,
        core_type: str = "aiv",
        pto_isa_root: PathLike | None = None,
        extra_include_dirs: Sequence[PathLike] | None = None,
        build_dir: PathLike | None = None,
    ) -> bytes:
        """Compile a kernel for cores of ``core_type``, ``"aic"`` or ``"aiv"``.

        ``pto_isa_root`` is the folder of the kernel tile library; the default is that of
        ``PTO_ISA_ROOT``. ``build_dir`` has no effect, because the cache has its own folder.
        """
        if core_type not in ("aic", "aiv"):
            raise UsageError(
                f"core_type is {core_type!r}; use 'aic' or 'aiv'",
                name="core_type",
                value=core_type,
            )
        source = Path(source_path)
        toolchain = self._toolchain({"pto_isa_root": str(pto_isa_root)} if pto_isa_root else {})
        interface = _interface(plugins.load_runtime(_DEFAULT_RUNTIME), source)
        request = toolchain.kernel(
            source,
            core_type,
            recipe_of(self._backend, core_type),
            (*_folders(extra_include_dirs or ()), *interface.kernel_include_dirs),
        )
        library = toolchain.build_many([request])[0].read_bytes()
        NAMES[digest_of(library)] = source.stem
        return library

    def compile_orchestration(
        self,
        runtime_name: str,
        source_path: PathLike,
        extra_include_dirs: Sequence[PathLike] | None = None,
        build_dir: PathLike | None = None,
    ) -> bytes:
        """Compile an orchestration for a runtime.

        The entry is ``aicpu_orchestration_entry``. If the source does not define it, the entry is
        the last function of the source that takes ``const ChipTaskArgs&`` alone.
        """
        source = Path(source_path)
        runtime = plugins.load_runtime(runtime_of(runtime_name))
        toolchain = self._toolchain({"runtime": runtime.name})
        build = _interface(runtime, source).orchestration
        recipe = orchestration_recipe(self._backend, runtime)
        entry = _entry(source, build.default_entry or "")
        options = [f"-I{folder}" for folder in _folders(extra_include_dirs or ())]
        request = toolchain.orchestration(source, entry, build, recipe, options)
        return toolchain.build_many([request])[0].read_bytes()

    def _toolchain(self, settings: dict[str, Any]) -> Toolchain:
        return Toolchain(load_with_plugins({"backend": self.platform, **settings}))


def incore_include_dirs() -> tuple[Path, ...]:
    """Return the folders with the headers that kernels of this interface include."""
    return _interface(plugins.load_runtime(_DEFAULT_RUNTIME), Path()).kernel_include_dirs


def _interface(runtime: Runtime, source: Path) -> ProgramInterface:
    """Return the interface of a source; it is that of August 2026 if the source shows no other."""
    return program_interface(runtime, source, default=API)


def _folders(given: Iterable[PathLike]) -> tuple[Path, ...]:
    return tuple(Path(folder).absolute() for folder in given)


def _entry(source: Path, default: str) -> str:
    """Return the name of the function that an orchestration starts with."""
    if not source.is_file():
        return default  # the build names the missing file
    found = _ENTRY.findall(_COMMENT.sub(" ", source.read_text("utf-8", "replace")))
    return default if default in found or not found else found[-1]
