"""Build the programs of peers/ and the kernels of the benchmarks with the host compiler."""

from __future__ import annotations

import importlib.util
import subprocess
import sysconfig
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from pto_core.interfaces import abi_include_dir

HERE = Path(__file__).resolve().parent
COMPILER = "g++"


class Binaries:
    """The compiled programs, in ``folder``; each is built at its first use.

    A property raises CalledProcessError if its source does not compile; stderr has the compiler's
    message.
    """

    def __init__(self, folder: Path, taskflow_include: str | None) -> None:
        self.folder = folder
        self._taskflow_include = taskflow_include

    @cached_property
    def floors(self) -> Path:
        """Compile the program that measures the floors of level 2 without using this framework."""
        return self._program("floors", "-pthread", "-ldl")

    @cached_property
    def parked_processes(self) -> Path:
        """Compile the program that measures the round trip between bare parked processes."""
        return self._program("parked_processes", "-pthread")

    @cached_property
    def openmp(self) -> Path:
        """Compile the program that runs the graphs as GCC's OpenMP tasks."""
        return self._program("openmp", "-fopenmp")

    @cached_property
    def openmp_depend(self) -> Path:
        """Compile the program that runs the graphs of tensors as OpenMP tasks with ``depend``."""
        return self._program("openmp_depend", "-fopenmp")

    @cached_property
    def submits(self) -> Path:
        """Compile the program that measures submits among few and among many regions."""
        return self._program("submits", "-ldl", f"-I{abi_include_dir()}")

    @cached_property
    def trace_records(self) -> Path:
        """Compile the program that measures the cost of a trace record."""
        return self._program("trace_records", "-pthread", f"-I{abi_include_dir()}")

    @cached_property
    def taskflow(self) -> Path | None:
        """Compile the program that runs the graphs in Taskflow; None without its headers."""
        if not self._taskflow_include:
            return None
        return self._program("taskflow", "-pthread", f"-I{self._taskflow_include}")

    @cached_property
    def bare_threads(self) -> Path:
        """Compile the program that runs a kernel on bare threads."""
        return self._program("bare_threads", "-pthread", "-ldl")

    def kernel(self, name: str) -> Path:
        """Compile a kernel of the benchmarks into a library."""
        return self._library(HERE / "sources" / f"{name}.cpp", f"{name}.so")

    @cached_property
    def empty_call(self) -> Callable[..., None]:
        """Compile and import a native function that accepts any arguments and does nothing."""
        include = sysconfig.get_path("include")
        library = self._library(HERE / "peers" / "empty_call.cpp", "empty_call.so", f"-I{include}")
        spec = importlib.util.spec_from_file_location("empty_call", library)
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return cast(Callable[..., None], module.call)

    def _program(self, name: str, *flags: str) -> Path:
        target = self.folder / name
        source = HERE / "peers" / f"{name}.cpp"
        self._compile([str(source), "-o", str(target), *flags])
        return target

    def _library(self, source: Path, name: str, *flags: str) -> Path:
        target = self.folder / name
        self._compile(["-shared", "-fPIC", str(source), "-o", str(target), *flags])
        return target

    def _compile(self, arguments: list[str]) -> None:
        subprocess.run([COMPILER, "-O2", "-std=c++20", *arguments], check=True)


def numbers(*command: object) -> list[list[float]]:
    """Run a program and return the numbers that it prints, one list for each line."""
    done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
