"""Draw the graph of the program in the first block of docs/graphs.md: write `race.svg`.

A test compares the picture in the repository with the output of this script.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "graphs.md"


def picture() -> str:
    """Return the text of the SVG file."""
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block, "the page has no program"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "vector.py")
        program.write_text(f"{block[1]}import sys\nsys.stderr.write(graph.to_svg())\n")
        command = [sys.executable, program.name]
        drawn = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return drawn.stderr.replace(f"{folder}/", "")


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
