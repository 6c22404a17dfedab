"""Compile sources to the bytes of libraries, with the toolchain of the core."""

from functools import cache
from pathlib import Path

from pto_core import plugins
from pto_core.chip import CoreCallable, KernelSource, OrchestrationSource
from pto_core.config import load_with_plugins
from pto_core.device.programs import SourceRequests
from pto_core.toolchain import Toolchain


@cache
def _requests() -> tuple[Toolchain, SourceRequests]:
    settings = {"backend": "a2a3sim", "runtime": "tensormap_and_ringbuffer"}
    config = load_with_plugins(settings)
    backend = plugins.load_backend(config["backend"])
    runtime = plugins.load_runtime(config["runtime"])
    toolchain = Toolchain(config)
    return toolchain, SourceRequests(toolchain, backend, runtime)


def incore(source: Path, *options: str) -> bytes:
    toolchain, requests = _requests()
    kernel = CoreCallable(KernelSource(source, options), "aiv")
    return toolchain.build_many([requests.kernel(kernel, "2026-08")])[0].read_bytes()


def orchestration(source: Path, entry: str) -> bytes:
    toolchain, requests = _requests()
    described = OrchestrationSource(source, entry)
    return toolchain.build_many([requests.orchestration(described)])[0].read_bytes()
