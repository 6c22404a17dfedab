"""Select the recipe of a backend for code of one kind, and build the libraries of its devices."""

from __future__ import annotations

from collections.abc import Mapping

from pto_core.errors import UnsupportedError
from pto_core.interfaces import Backend, BuildRecipe, DeviceBackend, Runtime
from pto_core.toolchain.toolchain import Toolchain


def recipe_of(backend: Backend, kind: str) -> BuildRecipe:
    """Return the recipe for ``kind``. Raises UnsupportedError if the backend has none."""
    recipe = backend.build_recipe(kind)
    if recipe is None:
        raise UnsupportedError(
            f"backend {backend.name!r} has no recipe that builds code of the kind {kind!r}; "
            "choose another backend, or pass a binary",
            name="kind",
            value=kind,
        )
    return recipe


def orchestration_recipe(backend: Backend, runtime: Runtime) -> BuildRecipe:
    """Return the recipe for C++ orchestrations of a runtime variant."""
    on_host = "host_orchestration" in runtime.capabilities
    return recipe_of(backend, "host_orchestration" if on_host else "orchestration")


def runtime_artefacts(
    toolchain: Toolchain, backend: Backend, runtime: Runtime
) -> list[tuple[str, str]]:
    """Build the variant for the devices of the backend; return the kind and path of each artefact.

    Returns an empty list if the backend runs the variant's library in the host process. Raises
    UnsupportedError if the variant runs there only, and CompileError.
    """
    recipe = backend.build_recipe("runtime")
    if recipe is None:
        return []
    build = runtime.device_build()
    if build is None:
        raise UnsupportedError(
            f"backend {backend.name!r} runs the runtime on its device, and the runtime "
            f"{runtime.name!r} runs in the host process only; choose another runtime",
            name="runtime",
            value=runtime.name,
        )
    return [("runtime", str(toolchain.build_many([toolchain.runtime(build, recipe)])[0]))]


def device_options(
    toolchain: Toolchain, backend: Backend, options: Mapping[str, str]
) -> dict[str, str]:
    """Build the libraries of the backend for its devices; return ``options`` with their paths.

    Raises CompileError.
    """
    if not isinstance(backend, DeviceBackend):
        return dict(options)
    libraries = backend.device_libraries(options)
    paths = toolchain.build_many(
        [toolchain.runtime(one.build, one.recipe, one.entry) for one in libraries]
    )
    built = {one.option: str(path) for one, path in zip(libraries, paths, strict=True)}
    return {**options, **built}
