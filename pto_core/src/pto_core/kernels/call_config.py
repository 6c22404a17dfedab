"""The options of one run: ``CallConfig``, with the published members."""

from __future__ import annotations

import itertools
import os
import struct
from dataclasses import dataclass

from pto_core._native import integer
from pto_core.errors import UsageError
from pto_core.errors.values import invalid_value, shown

# The layout of pto_call_config in pto/abi/arguments.h.
_LAYOUT = struct.Struct("=7i1024s")
_DIAGNOSTICS = (
    "enable_l2_swimlane",
    "enable_dump_tensor",
    "enable_pmu",
    "enable_dep_gen",
    "enable_scope_stats",
)
_DUMP_OFFSET, _DEP_GEN_OFFSET, _PREFIX_OFFSET = 12, 20, 28
_DUMP_HASHES = 4
_MOST_BLOCKS = 24
_MOST_AICPU_THREADS = 4
_LONGEST_PREFIX = 1023
_versions = itertools.count()


@dataclass
class CallConfig:
    """The options of one run. A run uses a copy, so later changes do not affect it.

    ``block_dim``: the number of core blocks; 0 means all blocks of the platform.
    ``aicpu_thread_num``: the number of AICPU threads, 1 to 4. The ``enable_*`` fields switch
    diagnostics on. ``enable_l2_swimlane`` is the level of the trace, 0 to 4. ``enable_pmu`` adds
    the performance counters of each kernel to the trace, which then has at least level 1.
    ``enable_dump_tensor`` writes the arrays of tasks: 1 those of failed tasks, 2 the arrays after
    each task, 3 before and after it, 4 hashes of their outputs (docs/dumps.md).
    ``enable_scope_stats`` writes the counters of rings and scopes. ``enable_dep_gen`` writes the
    graph of each run of a chip: ``PREFIX.device0.run1.json`` and ``.svg``. In the tasks of a
    Worker, the names of all files contain the numbers of the device and its run. Each diagnostic
    but ``enable_pmu`` needs ``output_prefix``, the prefix of the names of its output files. Raises
    UsageError for invalid values.
    """

    block_dim: int = 0
    aicpu_thread_num: int = 3
    enable_l2_swimlane: int = 0
    enable_dump_tensor: int = 0
    enable_pmu: int = 0
    enable_dep_gen: int = 0
    enable_scope_stats: int = 0
    output_prefix: str = ""

    def __post_init__(self) -> None:
        self.validate()

    def __setattr__(self, name: str, value: object) -> None:
        """Set a field and increment ``_version``, so that readers can detect the change."""
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_version", next(_versions))

    def validate(self) -> None:
        """Raise UsageError if a field has an invalid value."""
        _check_range("block_dim", self.block_dim, 0, _MOST_BLOCKS)
        _check_range("aicpu_thread_num", self.aicpu_thread_num, 1, _MOST_AICPU_THREADS)
        _check_range("enable_l2_swimlane", self.enable_l2_swimlane, 0, 4)
        _check_range("enable_pmu", self.enable_pmu, 0, 2**31 - 1)
        _check_range("enable_dump_tensor", self.enable_dump_tensor, 0, _DUMP_HASHES)
        for name in ("enable_dep_gen", "enable_scope_stats"):
            _check_range(name, getattr(self, name), 0, 1)
        self._check_prefix()

    def pack(self, trace: int | None = None) -> bytes:
        """Return the 1052 bytes of ``pto_call_config``.

        ``trace`` replaces ``enable_l2_swimlane``; it is at least 1 for a run with counters. Raises
        UsageError for invalid values.
        """
        self.validate()
        if trace is not None:
            _check_range("trace", trace, 0, 4)
            trace = max(trace, 1) if self.enable_pmu else trace
        return _LAYOUT.pack(
            self.block_dim,
            self.aicpu_thread_num,
            self.enable_l2_swimlane if trace is None else trace,
            self.enable_dump_tensor,
            self.enable_pmu,
            self.enable_dep_gen,
            self.enable_scope_stats,
            os.fsencode(self.output_prefix),
        )

    @classmethod
    def unpack(cls, packed: bytes) -> CallConfig:
        """Create a configuration from the result of :meth:`pack`."""
        *numbers, prefix = _LAYOUT.unpack(packed)
        names = ("block_dim", "aicpu_thread_num", *_DIAGNOSTICS)
        values = dict(zip(names, numbers, strict=True))
        return cls(**values, output_prefix=os.fsdecode(prefix.rstrip(b"\0")))

    def _switched_on(self) -> list[str]:
        return [name for name in _DIAGNOSTICS if getattr(self, name)]

    def _check_prefix(self) -> None:
        try:
            length = len(os.fsencode(self.output_prefix))
        except (TypeError, UnicodeEncodeError):
            length = 0
        if (
            not isinstance(self.output_prefix, str)
            or "\0" in self.output_prefix
            or (self.output_prefix and not length)
        ):
            raise invalid_value(
                "output_prefix", self.output_prefix, "pass a text that can be a path"
            )
        if length > _LONGEST_PREFIX:
            raise UsageError(
                f"output_prefix has {length} bytes; use at most {_LONGEST_PREFIX}",
                name="output_prefix",
                value=self.output_prefix,
            )
        for name in self._switched_on():
            if not self.output_prefix and name != "enable_pmu":
                raise UsageError(
                    f"the diagnostic {name}={getattr(self, name)} needs an output_prefix, "
                    "the prefix of the names of its output files",
                    name="output_prefix",
                    value="",
                )


def with_access_log(packed: bytes, *, written: bool = False) -> bytes:
    """Return a packed configuration that also makes the runtime keep its access log.

    ``written``: the log of measured kernels has the bytes that they wrote.
    """
    changed = bytearray(packed)
    struct.pack_into("=i", changed, _DEP_GEN_OFFSET, 2 if written else 1)
    return bytes(changed)


def with_dump(packed: bytes, level: int, file: str) -> bytes:
    """Return a packed configuration whose run writes a dump to a file; level 0: none.

    Raises UsageError if the path is too long.
    """
    path = os.fsencode(file)
    if len(path) > _LONGEST_PREFIX:
        raise UsageError(
            f"the path of the dump has {len(path)} bytes: {shown(file)}; use a folder whose path "
            f"is shorter: at most {_LONGEST_PREFIX} bytes in all",
            name="dump",
            value=file,
        )
    changed = bytearray(packed)
    struct.pack_into("=i", changed, _DUMP_OFFSET, level)
    struct.pack_into("1024s", changed, _PREFIX_OFFSET, path)
    return bytes(changed)


def _check_range(name: str, value: object, least: int, most: int) -> None:
    number = int(value) if isinstance(value, bool) else value
    if integer(number, least, most) is not None:
        return
    raise invalid_value(
        name, value, f"use an integer from {least} to {most}", expected=f"{least} to {most}"
    )
