"""A toolchain with a separate cache, and kernels written by the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core.config import Config, load_core
from pto_core.interfaces import BuildRecipe, OrchestrationBuild
from pto_core.toolchain import BuildEvent, Toolchain

HOST = BuildRecipe(flags=("-O1", "-fpermissive", "-w"), definitions=("__CPU_SIM",))


class Bench:
    """Builds kernels from text and counts how often a compiler ran."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "sources"
        self.sources.mkdir()
        self.cache = folder / "cache"
        self.events: list[BuildEvent] = []

    def config(self, **settings: object) -> Config:
        return load_core({"cache_dir": self.cache, **settings}, environ={})

    def write(self, name: str, text: str) -> Path:
        path = self.sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def build(self, source: Path, toolchain: BuildRecipe = HOST, **settings: object) -> Path:
        self.events.clear()
        built = Toolchain(self.config(**settings), self.events.append)
        return built.build_kernel(source, "aiv", toolchain)

    def build_orchestration(self, source: Path, entry: str | None, of: OrchestrationBuild) -> Path:
        built = Toolchain(self.config())
        return built.build_many([built.orchestration(source, entry, of)])[0]

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.events]

    def leftovers(self) -> list[str]:
        """Return the files in the cache other than finished artefacts."""
        folders = [self.cache / "scratch", self.cache / "locks"]
        return [str(path) for folder in folders for path in folder.glob("*")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def kernel() -> Callable[[str], str]:
    """Return the source of a kernel that stores an expression's value."""

    def text(expression: str, before: str = "") -> str:
        return (
            f"#include <cstdint>\n{before}\n"
            f'extern "C" void kernel_entry(int64_t* args) {{ args[0] = {expression}; }}\n'
        )

    return text
