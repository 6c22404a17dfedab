"""Turn a checked ``kernel_config.py`` into a callable that a device can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pto_core.cases.golden import Inputs
from pto_core.cases.kernel_config import KernelConfig, KernelEntry
from pto_core.cases.user_module import load_module, required
from pto_core.cases.values import Tensor
from pto_core.errors import UsageError
from pto_core.interfaces import Backend, Runtime
from pto_core.kernels import ChipCallable, CoreCallable, Direction
from pto_core.toolchain import BuildRequest, Toolchain, orchestration_recipe, recipe_of


class Build:
    """The kernels and the orchestration of a case, built once for all its cases."""

    def __init__(
        self,
        toolchain: Toolchain,
        kernel_config: KernelConfig,
        backend: Backend,
        runtime: Runtime,
    ) -> None:
        """Build all sources in parallel; raises CompileError or UsageError."""
        entry = kernel_config.orchestration(runtime.name)
        kernels = kernel_config.kernels(runtime.name)
        python = [kernel for kernel in kernels if kernel.is_python]
        compiled = [kernel for kernel in kernels if not kernel.is_python]
        self.children = {kernel.func_id: _python_kernel(kernel) for kernel in python}
        requests = [_kernel_request(toolchain, kernel, backend, runtime) for kernel in compiled]
        if not entry.is_python:
            build = runtime.orchestration_build()
            recipe = orchestration_recipe(backend, runtime)
            requests.append(toolchain.orchestration(entry.source, entry.function, build, recipe))
        paths = toolchain.build_many(requests)
        self.precision_warnings = tuple(toolchain.precision_warnings)
        for kernel, path in zip(compiled, paths, strict=False):
            self.children[kernel.func_id] = CoreCallable(
                path, kernel.core_type, kernel.signature, kernel.name
            )
        self._entry = entry
        self._orchestration: Path | Callable[..., Any] = (
            _function(entry.source, entry.function) if entry.is_python else paths[-1]
        )

    @property
    def kernel_names(self) -> dict[int, str]:
        """The name of each kernel by its ``func_id``."""
        return {func_id: child.name for func_id, child in self.children.items()}

    def chip(self, inputs: Inputs) -> ChipCallable:
        """Return the callable for these inputs; outputs without declared direction are INOUT."""
        return ChipCallable(
            self._orchestration,
            self.children,
            self._signature(inputs),
            name=self._entry.function or self._entry.source.stem,
            argument_names=[argument.name for argument in inputs.arguments],
        )

    def _signature(self, inputs: Inputs) -> Iterable[Any] | None:
        if self._entry.signature is not None:
            signature: Iterable[Any] = self._entry.signature
            return signature
        if callable(self._orchestration) and any(
            direction is not Direction.UNSPECIFIED
            for direction in ChipCallable(self._orchestration).directions()[0]
        ):
            return None
        return [
            "inout" if argument.name in inputs.outputs else "in"
            for argument in inputs.arguments
            if isinstance(argument, Tensor)
        ]


def _kernel_request(
    toolchain: Toolchain, kernel: KernelEntry, backend: Backend, runtime: Runtime
) -> BuildRequest:
    return toolchain.kernel(
        kernel.source,
        kernel.core_type,
        recipe_of(backend, kernel.core_type),
        runtime.kernel_include_dirs(),
    )


def _python_kernel(kernel: KernelEntry) -> CoreCallable:
    found = _function(kernel.source, kernel.function)
    if not isinstance(found, CoreCallable):
        return CoreCallable(found, kernel.core_type, kernel.signature, kernel.name)
    if found.core_type.name.lower() != kernel.core_type:
        raise UsageError(
            f"kernel {kernel.name!r} has the core type {found.core_type.name.lower()} in "
            f"{kernel.source}, but {kernel.core_type} in KERNELS; use the same type in both",
            name="core_type",
            value=kernel.core_type,
            expected=found.core_type.name.lower(),
        )
    return found


def _function(source: Path, name: str | None) -> Any:
    assert name is not None, "checked when the file was read"
    found = required(load_module(source), name, f"def {name}(...)")
    if not callable(found):
        raise UsageError(
            f"{source}: {name} is {type(found).__name__}; expected a function",
            name="function_name",
            value=name,
        )
    return found
