"""Format times with units."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit: ``1.24 s``, ``3.1 ms``, ``112 us``."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else "1.00 s"
    return f"{seconds * 1e6:.3g} us"
