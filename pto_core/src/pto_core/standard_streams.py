"""Replace closed standard streams by ``/dev/null``.

A program can be started with closed streams, or close them. Then the next files that it opens get
the descriptors 0 to 2, so that printed text would be written into shared memory, and a child that
inherits them would read or close them.
"""

from __future__ import annotations

import contextlib
import os
import sys

_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}


def complete() -> None:
    """Open ``/dev/null`` for each closed descriptor 0 to 2, and for each stream that is None."""
    with contextlib.suppress(OSError):  # no descriptor is left, or there is no /dev
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor <= 2:
            os.set_inheritable(descriptor, True)
            descriptor = os.open(os.devnull, os.O_RDWR)
        os.close(descriptor)
        for name, mode in _MODES.items():
            if getattr(sys, name) is None:
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
