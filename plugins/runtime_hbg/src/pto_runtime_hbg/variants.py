"""The two plugin objects: the library, headers and settings of each variant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from pto_core.interfaces import (
    API_VERSION,
    DeviceBuild,
    Health,
    Option,
    OrchestrationBuild,
    ProgramInterface,
    abi_include_dir,
)

_PACKAGE = Path(__file__).parent.resolve()
_INCLUDE = _PACKAGE / "include"
_NATIVE = _PACKAGE / "native"
_AUGUST = (r"\b(?:Chip|L2)TaskArgs\b",)  # the argument of an entry
_RUNS_AUGUST = "tensormap_and_ringbuffer"
_COMMON_SOURCES = (
    *("diagnosis.cpp", "graph.cpp", "graph_image.cpp", "instance.cpp"),
    *("orchestration_calls.cpp", "scheduler.cpp"),
)


def _parse_build_mode(text: str) -> int:
    if text.strip() not in ("0", "1"):
        raise ValueError("1 (schedule during the build) or 0 (first build, then schedule)")
    return int(text)


BUILD_MODE = Option(
    key="hbg.build_mode",
    default=1,
    parse=_parse_build_mode,
    help="aicpu_build_graph: 1: schedule during the build; 0: first build, then schedule",
    environment="PTO_AICPU_BUILD_GRAPH_BUILD_MODE",
    native="build_mode",
)


@dataclass(frozen=True)
class BuildGraphVariant:
    """A build-graph variant: one native library and one folder of headers named after it."""

    name: str
    capabilities: frozenset[str]
    settings: tuple[Option, ...] = ()
    api_version: int = API_VERSION

    def health(self) -> Health:
        """Report a healthy variant: it needs only its library, which the core checks."""
        return Health(ok=True)

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_runtime_entry``."""
        return _PACKAGE / f"libpto_{self.name}.so"

    def device_build(self) -> DeviceBuild:
        """Return the sources of the library, which are installed with this package."""
        return DeviceBuild(
            sources=tuple(_NATIVE / name for name in (*_COMMON_SOURCES, f"{self.name}.cpp")),
            include_dirs=(_NATIVE, _INCLUDE / "calls", abi_include_dir()),
        )

    def program_interfaces(self) -> tuple[ProgramInterface, ...]:
        """Return the interface of March 2026; an orchestration's library exports only its entry.

        In August 2026, host_build_graph has the calls of tensormap_and_ringbuffer, so that variant
        runs its programs.
        """
        headers = (_INCLUDE / self.name, _INCLUDE / "calls", abi_include_dir())
        orchestration = OrchestrationBuild(
            include_dirs=headers,
            wrapper=_INCLUDE / self.name / "entry_wrapper.hpp",
            flags=(
                *("-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
                f"-Wl,--version-script={_INCLUDE / 'calls' / 'exports.map'}",
            ),
        )
        march = ProgramInterface("2026-03", orchestration, headers)
        if self.name != "host_build_graph":
            return (march,)
        return march, replace(march, name="2026-08", marks=_AUGUST, runtime=_RUNS_AUGUST)

    def options(self) -> tuple[Option, ...]:
        """List the settings that this variant adds."""
        return self.settings


host_build_graph = BuildGraphVariant(
    "host_build_graph", frozenset({"explicit_edges", "host_orchestration"})
)
aicpu_build_graph = BuildGraphVariant(
    "aicpu_build_graph", frozenset({"explicit_edges", "publish"}), settings=(BUILD_MODE,)
)
