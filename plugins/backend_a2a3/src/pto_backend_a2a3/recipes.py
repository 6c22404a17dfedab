"""The recipes of the backend: native code for the fake driver, code of the chip for a card."""

from __future__ import annotations

from pto_backend_a2a3.core_code import executor_build, executor_recipe, kernel_recipe
from pto_backend_a2a3.device_code import CHIP, aicpu_recipe, device_libraries, native_executor
from pto_backend_a2a3.options import FAKE
from pto_core.config import process_environment
from pto_core.interfaces import KINDS, BuildRecipe, DeviceLibrary

_NATIVE_KERNELS = BuildRecipe(
    flags=(
        "-shared",
        "-O2",
        "-fPIC",
        "-fno-gnu-unique",
        "-ffp-contract=off",
        "-fpermissive",
        "-Wno-attributes",
        "-Wno-unknown-attributes",
        "-Wno-ignored-attributes",
        "-Wno-macro-redefined",
    ),
    definitions=(
        "__CPU_SIM",
        "PTO_CPU_MAX_THREADS=1",
        "NDEBUG",
        "__aicore__=",
        "__gm__=",
        "__global__=",
    ),
)


def uses_fake_driver() -> bool:
    """Return whether the environment selects the fake driver of the tests."""
    text = process_environment().get(FAKE.variable)
    return bool(FAKE.parse(text)) if text else False


def find_recipe(kind: str) -> BuildRecipe:
    """Return the recipe for code of one kind.

    Raises BackendUnavailableError for kernels of a card without the compiler of CANN.
    """
    if kind not in KINDS:
        raise ValueError(f"the kind of code is {kind!r}; expected one of {', '.join(KINDS)}")
    is_kernel = kind in ("aic", "aiv")
    if kind == "host_orchestration" or (uses_fake_driver() and not is_kernel):
        return BuildRecipe()
    if uses_fake_driver():
        return _NATIVE_KERNELS
    return kernel_recipe(kind) if is_kernel else aicpu_recipe(kind)


def find_libraries() -> tuple[DeviceLibrary, ...]:
    """Return the libraries that run on the device. Raises as :func:`find_recipe`."""
    recipe = find_recipe("runtime")
    if uses_fake_driver():
        return (*device_libraries(recipe), native_executor(recipe))
    executor = DeviceLibrary("executor", "", executor_build(), executor_recipe())
    return (*device_libraries(recipe, CHIP), executor)
