"""Analyse an access log natively: edges with their reasons, the order of tasks, and conflicts."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from pto_core.errors import UsageError
from pto_insight.graphs.log import AccessLog

NO_ACCESS = 2**32 - 1

REASON = np.dtype(
    [
        ("first", "u4"),
        ("second", "u4"),
        ("first_access", "u4"),
        ("second_access", "u4"),
        ("why", "u4"),
        ("is_conservative", "u4"),
        ("first_byte", "u8"),
        ("shared_bytes", "u8"),
    ]
)
EDGE = np.dtype([("first", "u4"), ("second", "u4"), ("is_redundant", "u4")])
CONFLICT = np.dtype(
    [
        ("first", "u4"),
        ("second", "u4"),
        ("first_byte", "u8"),
        ("last_byte", "u8"),
        ("shared_bytes", "u8"),
    ]
)


class Why(IntEnum):
    """The reason of an edge, from the earlier task A to the later task B."""

    READ = 0
    """B reads what A wrote."""
    OVERWRITE = 1
    """B overwrites what A wrote."""
    ANTI_DEPENDENCE = 2
    """B overwrites what A read."""
    EXPLICIT = 3
    """The program states the edge."""
    CLUSTER = 4
    """B runs on a cluster that is allocated again after the cluster of A was freed."""
    RETAINING = 5
    """The program states the edge, and the memory of A lives until B has ended."""
    OWNER = 6
    """B names memory that A allocated."""
    HOST = 7
    """A is an access of the orchestration, which continues after it."""


VERBS = {
    Why.READ: ("reads", "written"),
    Why.OVERWRITE: ("overwrites", "written before"),
    Why.ANTI_DEPENDENCE: ("overwrites", "read before"),
    Why.OWNER: ("names", "allocated"),
}
"""What the later task does with a place, and what the earlier task did."""


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_PROBLEM_BYTES = 200


def _functions() -> ctypes.CDLL:
    library = ctypes.CDLL(str(Path(__file__).parents[1] / "libpto_insight.so"))
    table = ctypes.POINTER(_POINTER)
    signatures: dict[str, tuple[Any, ...]] = {
        "open": (_POINTER, *[_POINTER, _SIZE] * 3, *(ctypes.c_bool, ctypes.c_uint32)),
        "close": (None, _POINTER),
        "is_before": (ctypes.c_bool, _POINTER, ctypes.c_uint32, ctypes.c_uint32),
        "conflicts": (_SIZE, _POINTER, ctypes.c_uint64, table, ctypes.POINTER(ctypes.c_bool)),
        **dict.fromkeys(("reasons", "edges", "unwritten", "extents"), (_SIZE, _POINTER, table)),
    }
    signatures["open"] += (ctypes.c_char_p, _SIZE)
    for name, (result, *arguments) in signatures.items():
        function = getattr(library, f"pto_analysis_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_LIBRARY = _functions()


class LogAnalysis:
    """The analysis of one access log; see native/log_analysis.hpp.

    Tables are the bytes of packed rows. Raises UsageError if the log is damaged.
    """

    def __init__(self, log: AccessLog) -> None:
        tables = [np.ascontiguousarray(rows) for rows in (log.tasks, log.accesses, log.events)]
        problem = ctypes.create_string_buffer(_PROBLEM_BYTES)
        sized = [word for rows in tables for word in (rows.ctypes.data, len(rows))]
        self._handle = _LIBRARY.pto_analysis_open(
            *sized, log.is_full, log.blocks, problem, _PROBLEM_BYTES
        )
        if self._handle is None:
            text = problem.value.decode(errors="replace")
            raise UsageError(f"the access log is damaged: {text}", name="log")
        weakref.finalize(self, _LIBRARY.pto_analysis_close, self._handle)

    def reasons(self) -> bytes:
        """Return the reasons of all edges, as rows of EdgeReason."""
        return self._table(_LIBRARY.pto_analysis_reasons)

    def edges(self) -> bytes:
        """Return the edges, as rows of Edge."""
        return self._table(_LIBRARY.pto_analysis_edges)

    def unwritten(self) -> bytes:
        """Return the accesses that read memory that no earlier task wrote, as uint32."""
        return self._table(_LIBRARY.pto_analysis_unwritten)

    def extents(self) -> bytes:
        """Return the first and the last address of each access, as uint64."""
        return self._table(_LIBRARY.pto_analysis_extents)

    def is_before(self, a: int, b: int) -> bool:
        """Return whether task ``a`` ends before task ``b`` starts, in every run. Both exist."""
        return bool(_LIBRARY.pto_analysis_is_before(self._handle, a, b))

    def conflicts(self, limit: int) -> tuple[bytes, bool]:
        """Return the conflicts, as rows of Conflict, and whether these are all of them."""
        rows, is_complete = _POINTER(), ctypes.c_bool()
        size = _LIBRARY.pto_analysis_conflicts(self._handle, limit, rows, is_complete)
        return ctypes.string_at(rows, size) if size else b"", is_complete.value

    def _table(self, function: Callable[..., int]) -> bytes:
        rows = _POINTER()
        size = function(self._handle, rows)
        return ctypes.string_at(rows, size) if size else b""
