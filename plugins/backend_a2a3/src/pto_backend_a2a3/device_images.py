"""The libraries that the check of a card needs, built with the recipes of this plugin."""

from __future__ import annotations

import shutil
from pathlib import Path

from pto_backend_a2a3.device_code import probe_library
from pto_backend_a2a3.recipes import find_libraries, find_recipe
from pto_core.config import load
from pto_core.interfaces import abi_include_dir
from pto_core.toolchain import Toolchain

PROBE_KERNEL = Path(__file__).with_name("native") / "device" / "probe_kernel.cpp"
"""A kernel that writes 3 x + 1 for each 32-bit number x; its arguments are in, out and count."""


def build_images(folder: Path) -> list[str]:
    """Build the libraries, copy them to ``folder`` under the names that the check reads.

    Returns the names. Raises BackendUnavailableError without the compiler of CANN, or CompileError.
    """
    toolchain = Toolchain(load(None))
    libraries = (*find_libraries(), probe_library(find_recipe("runtime")))
    requests = {
        library.option: toolchain.runtime(library.build, library.recipe, library.entry)
        for library in libraries
    }
    requests["probe_kernel"] = toolchain.kernel(
        PROBE_KERNEL, "aiv", find_recipe("aiv"), (abi_include_dir(),)
    )
    built = toolchain.build_many(list(requests.values()))
    for name, path in zip(requests, built, strict=True):
        shutil.copyfile(path, folder / f"libpto_a2a3_{name}.so")
    return list(requests)
