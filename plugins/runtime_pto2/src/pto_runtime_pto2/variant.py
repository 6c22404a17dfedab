"""The plugin object: the paths of its library and headers, and the options for sizes."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pto_core.interfaces import (
    API_VERSION,
    DeviceBuild,
    Health,
    Option,
    OrchestrationBuild,
    ProgramInterface,
    abi_include_dir,
    parse,
)

_PACKAGE = Path(__file__).parent.resolve()
_INCLUDE = _PACKAGE / "include"
_NATIVE = _PACKAGE / "native"
_RINGS = 4
_SLAB_BYTES = 1024


def _window(text: str) -> int:
    try:
        slots = int(text, 0)
    except ValueError:
        slots = 0
    if not 4 <= slots <= 2**24 or slots & (slots - 1):
        raise ValueError("a power of two, at least 4 and at most 16777216")
    return slots


def _heap_bytes(text: str) -> int:
    try:
        size: int = parse.size_bytes(text)
    except ValueError:
        size = 0
    if not _SLAB_BYTES <= size <= 2**46:
        raise ValueError("a size in bytes such as 65536, 64K or 1G, at least 1024 and at most 64T")
    return size - size % _SLAB_BYTES


TASK_WINDOW = Option(
    key="pto2.task_window",
    default=(65536,) * _RINGS,
    parse=parse.several(_window, _RINGS),
    help="slots of each task ring, a power of two; one value, or four by scope depth",
    environment="PTO2_RING_TASK_WINDOW",
    native="task_window",
)
HEAP = Option(
    key="pto2.heap",
    default=(2**30,) * _RINGS,
    parse=parse.several(_heap_bytes, _RINGS),
    help="bytes of each heap ring, rounded down to KiB; one value or four, as for task_window",
    environment="PTO2_RING_HEAP",
    native="heap",
)
DEP_POOL = Option(
    key="pto2.dep_pool",
    default=(65536,) * _RINGS,
    parse=parse.several(parse.integer(minimum=16, maximum=2**30 - 1), _RINGS),
    help="edges that each ring can contain; one value or four, as for task_window",
    environment="PTO2_RING_DEP_POOL",
    native="dep_pool",
)
READY_QUEUE_SHARDS = Option(
    key="pto2.ready_queue_shards",
    default=3,
    parse=parse.integer(minimum=1, maximum=16),
    help="ready queues for each type of core, from which scheduler threads steal",
    environment="PTO2_READY_QUEUE_SHARDS",
    native="ready_queue_shards",
)
TENSOR_MAP_POOL = Option(
    key="pto2.tensor_map_pool",
    default=65536,
    parse=parse.integer(minimum=16, maximum=2**28),
    help="maximum number of regions that live tasks write; a submit waits if there are more",
    native="tensor_map_pool",
)


class RingBufferVariant:
    """The variant that infers dependencies from tensors and runs graphs of any number of tasks."""

    name = "tensormap_and_ringbuffer"
    api_version = API_VERSION
    capabilities = frozenset({"inferred_edges", "scopes"})

    def health(self) -> Health:
        """Report a healthy variant: it needs only its library, which the core checks."""
        return Health(ok=True)

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_runtime_entry``."""
        return _PACKAGE / "libpto_tensormap_and_ringbuffer.so"

    def device_build(self) -> DeviceBuild:
        """Return the sources of the library, which are installed with this package."""
        return DeviceBuild(
            sources=tuple(sorted(_NATIVE.glob("*.cpp"))),
            include_dirs=(_NATIVE, _INCLUDE / "calls", abi_include_dir()),
        )

    def program_interfaces(self) -> tuple[ProgramInterface, ...]:
        """List the interfaces of C++ programs: one for each folder of headers, the oldest first."""
        return tuple(_read_interface(path) for path in sorted(_INCLUDE.glob("*/interface.toml")))

    def options(self) -> tuple[Option, ...]:
        """List the settings of this variant: the sizes of its rings and pools."""
        return (TASK_WINDOW, HEAP, DEP_POOL, READY_QUEUE_SHARDS, TENSOR_MAP_POOL)


def _read_interface(path: Path) -> ProgramInterface:
    """Return the interface whose headers are in the folder of ``path``."""
    folder = path.parent
    described = tomllib.loads(path.read_text("utf-8"))
    orchestration = OrchestrationBuild(
        include_dirs=(folder, _INCLUDE / "calls", abi_include_dir()),
        wrapper=folder / "entry_wrapper.hpp",
        standard=described["standard"],
        flags=(
            *("-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"),
            f"-Wl,--version-script={_INCLUDE / 'calls' / 'exports.map'}",
        ),
        default_entry="aicpu_orchestration_entry",
    )
    return ProgramInterface(
        name=folder.name,
        orchestration=orchestration,
        kernel_include_dirs=(folder, abi_include_dir()),
        marks=tuple(described["marks"]),
    )


plugin = RingBufferVariant()
