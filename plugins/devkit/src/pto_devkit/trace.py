"""``python -m pto_devkit.trace BACKEND SEED``: print the trace hash of a fixed run."""

from __future__ import annotations

import sys

from pto_devkit.claims import trace_hash
from pto_devkit.subjects import BackendSubject


def main(backend: str, seed: str) -> None:
    """Print the hash, in decimal."""
    sys.stdout.write(f"{trace_hash(BackendSubject.load(backend), int(seed))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
