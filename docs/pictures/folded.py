"""Draw the folded graph of examples/05_paged_attention: write `folded.svg`.

A test compares the picture in the repository with the output of this script.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def picture() -> str:
    """Return the text of the SVG file. Its paths are relative to the repository."""
    case = ("examples/05_paged_attention", "-r", "tensormap_and_ringbuffer")
    command = [sys.executable, "-m", "pto_core.cli", "graph", *case]
    drawn = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return drawn.replace(f"{ROOT}/", "")


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
