"""Code for the cores of a card: the compiler of CANN, the recipe of kernels, and the executor.

The flags have been compared with public builds of kernels, and were never given to the compiler of
CANN by this project: `docs/ascend.md` lists what has been shown.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from pto_core.config import process_environment
from pto_core.errors import BackendUnavailableError
from pto_core.interfaces import BuildRecipe, DeviceBuild, abi_include_dir

_NATIVE = Path(__file__).with_name("native")
_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_DEFAULT_FOLDERS = (
    Path("/usr/local/Ascend/cann"),
    Path("/usr/local/Ascend/ascend-toolkit/latest"),
)
_STANDARD = "c++17"
_ARCHITECTURES = {"aic": "dav-c220-cube", "aiv": "dav-c220-vec"}
_BACK_END = (
    "-cce-aicore-stack-size=0x8000",
    "-cce-aicore-function-stack-size=0x8000",
    "-cce-aicore-record-overflow=false",
    "-cce-aicore-addr-transform",
    "-cce-aicore-dcci-insert-for-scalar=false",
)
_LINK_EXECUTOR = ("-m", "aicorelinux", "-Ttext=0", "-static", "-n")


@dataclass(frozen=True)
class Toolkit:
    """The programs of CANN that build code for cores."""

    compiler: Path
    linker: Path


def toolkit_folders() -> dict[Path, str]:
    """Return the folders in which CANN is searched, with the variable that named each, or ""."""
    environment = process_environment()
    named = {Path(environment[name]): name for name in _VARIABLES if environment.get(name)}
    return named or dict.fromkeys(_DEFAULT_FOLDERS, "")


def find_toolkit() -> Toolkit:
    """Find the compiler and the linker of CANN. Raises BackendUnavailableError."""
    folders = toolkit_folders()
    for folder in folders:
        toolkit = Toolkit(folder / "bin" / "ccec", folder / "bin" / "ld.lld")
        if toolkit.compiler.is_file() and toolkit.linker.is_file():
            return toolkit
    searched = " and ".join(
        f"{folder} ({variable})" if variable else str(folder)
        for folder, variable in folders.items()
    )
    reason = f"the compiler bin/ccec and the linker bin/ld.lld of CANN are not in {searched}"
    fix = (
        "install the CANN toolkit and source its set_env.sh, or set ASCEND_HOME_PATH to its folder"
    )
    raise BackendUnavailableError(
        f"backend 'a2a3' cannot build code for a card: {reason}; {fix}",
        backend="a2a3",
        reason=reason,
        fix=fix,
    )


def kernel_recipe(core_type: str) -> BuildRecipe:
    """Return the recipe of kernels for ``aic`` or ``aiv``. Raises BackendUnavailableError.

    The result has no library around it. The host uploads its code.
    """
    toolkit = find_toolkit()
    link = (str(toolkit.linker), "-e", "kernel_entry", "{input}", "-o", "{output}")
    return BuildRecipe(
        compilers=(shlex.quote(str(toolkit.compiler)),),
        standard=_STANDARD,
        flags=_flags(core_type),
        definitions=("MEMORY_BASE", "PTO_AICORE"),
        steps=(link,),
        keeps_attributes=True,
    )


def executor_recipe() -> BuildRecipe:
    """Return the recipe of the executor, whose two halves are linked into one file.

    The compiler proper compiles the half of the vector cores, and a step the half of the cube
    cores. Raises BackendUnavailableError.
    """
    toolkit = find_toolkit()
    linker = str(toolkit.linker)
    compile_cube = (
        *(str(toolkit.compiler), f"-std={_STANDARD}", *_flags("aic"), "-DPTO_AICORE"),
        *(f"-I{folder}" for folder in executor_build().include_dirs),
        *("-o", "{folder}/cube", str(executor_build().sources[0])),
    )
    return BuildRecipe(
        compilers=(shlex.quote(str(toolkit.compiler)),),
        standard=_STANDARD,
        flags=_flags("aiv"),
        definitions=("PTO_AICORE",),
        steps=(
            (linker, "-r", "{input}", "-o", "{folder}/aiv"),
            compile_cube,
            (linker, "-r", "{folder}/cube", "-o", "{folder}/aic"),
            (linker, *_LINK_EXECUTOR, "{folder}/aic", "{folder}/aiv", "-o", "{output}"),
        ),
        keeps_attributes=True,
    )


def executor_build() -> DeviceBuild:
    """Return the source of the executor for the chip, which is installed with this package."""
    return DeviceBuild(
        sources=(_NATIVE / "device" / "chip_executor.cpp",),
        include_dirs=(_NATIVE, abi_include_dir()),
        flags=(),
    )


def _flags(core_type: str) -> tuple[str, ...]:
    return (
        *("-c", "-O3", "-g", "-x", "cce", "-Wall"),
        *("--cce-aicore-only", f"--cce-aicore-arch={_ARCHITECTURES[core_type]}"),
        *(word for option in _BACK_END for word in ("-mllvm", option)),
        # A contracted a * b + c has other bytes than the reference.
        "-ffp-contract=off",
    )
