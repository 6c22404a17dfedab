"""The memory of chunks in flight, which the C library allocates for this process and its link."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 128 << 20  # more than the chunks of a session need


def keep_freed_chunks() -> None:
    """Let ``malloc`` keep the memory of freed chunks for later ones.

    By default each chunk of 1 MiB gets fresh pages. Their first use takes longer than the copy.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
