"""Builds the peers and the kernels of the figures with the host compiler."""

from __future__ import annotations

import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMPILER = "g++"


class Binaries:
    """Everything compiled, in ``folder``; built once, at construction.

    Raises CalledProcessError, with the compiler's words on stderr, when a source does not compile.
    """

    def __init__(self, folder: Path, taskflow_include: str | None) -> None:
        self.folder = folder
        self.openmp = self._program("openmp", "-fopenmp")
        self.bare_threads = self._program("bare_threads", "-pthread", "-ldl")
        self.spin = self._library("spin")
        self.taskflow = (
            self._program("taskflow", "-pthread", f"-I{taskflow_include}")
            if taskflow_include
            else None
        )

    def _program(self, name: str, *flags: str) -> Path:
        target = self.folder / name
        source = HERE / "peers" / f"{name}.cpp"
        self._compile([str(source), "-o", str(target), *flags])
        return target

    def _library(self, name: str) -> Path:
        target = self.folder / f"{name}.so"
        source = HERE / "sources" / f"{name}.cpp"
        self._compile(["-shared", "-fPIC", str(source), "-o", str(target)])
        return target

    def _compile(self, arguments: list[str]) -> None:
        subprocess.run([COMPILER, "-O2", "-std=c++20", *arguments], check=True)


def numbers(*command: object) -> list[list[float]]:
    """Run a program and read the numbers that it prints, a list for each line."""
    done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
