"""The plugin object: the path of the library, the build recipes, and the settings."""

from __future__ import annotations

from pathlib import Path

from pto_backend_sim.options import OPTIONS
from pto_core.interfaces import API_VERSION, KINDS, BuildRecipe, Health, Option

_LIBRARY = Path(__file__).with_name("libpto_backend_sim.so")
_MEASURED_KERNEL = Path(__file__).parent.resolve() / "include" / "measured_kernel.hpp"

_KERNEL_FLAGS = (
    "-shared",
    "-O2",
    "-fPIC",
    "-fno-gnu-unique",
    # A contracted a * b + c has other bytes, and not every machine contracts.
    "-ffp-contract=off",
    # Hide the symbols of a statically linked C++ library (-static-libstdc++). Otherwise they mix
    # with the symbols of another copy in the process.
    "-Wl,--exclude-libs,ALL",
    "-fpermissive",
    # Kernel sources contain attributes of the device compiler. The host compiler does not know them
    # and must not warn.
    "-Wno-attributes",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-Wno-macro-redefined",
)
# The last three macros stand for attributes of the device compiler. They are predefined, so that an
# #ifndef in the kernel source does not define them again.
_KERNEL_DEFINITIONS = (
    "__CPU_SIM",
    "PTO_CPU_MAX_THREADS=1",
    "NDEBUG",
    "__aicore__=",
    "__gm__=",
    "__global__=",
)
# The compiler inserts a call before each access, and measured_kernel.hpp defines these functions.
_MEASURED_FLAGS = (
    "-include",
    str(_MEASURED_KERNEL),
    # Only the compiler proper gets this flag. The linker would link the ThreadSanitizer's library.
    "-Wp,-fsanitize=thread",
    # The C++ library must not add annotations for the ThreadSanitizer.
    "-U__SANITIZE_THREAD__",
    "-Wno-tsan",
    "-Wno-unknown-warning-option",
    # Otherwise the compiler replaces some of these calls by accesses that it does not report.
    *(f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset", "memcmp")),
    "-U_FORTIFY_SOURCE",
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=memcmp",
    # A library calls its own functions, also if the process uses the ThreadSanitizer.
    "-Wl,-Bsymbolic-functions",
)


def _kernels(core_macro: str) -> BuildRecipe:
    return BuildRecipe(
        flags=_KERNEL_FLAGS,
        definitions=(*_KERNEL_DEFINITIONS, core_macro),
        measured_flags=_MEASURED_FLAGS,
    )


# Orchestrations have the flags of their variant only.
_RECIPES = {
    "aic": _kernels("__DAV_CUBE__"),
    "aiv": _kernels("__DAV_VEC__"),
    "orchestration": BuildRecipe(),
    "host_orchestration": BuildRecipe(),
}


class Simulator:
    """An a2a3 chip in this process: up to 24 blocks of one AIC and two AIV cores."""

    name = "a2a3sim"
    api_version = API_VERSION
    capabilities = frozenset(
        {"threads", "deterministic", "checking", "callbacks", "planning", "activity", "dump"}
    )

    def health(self) -> Health:
        """Report a healthy simulator: it needs only its library, which the core checks."""
        return Health(ok=True)

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_backend_entry``."""
        return _LIBRARY

    def build_recipe(self, kind: str) -> BuildRecipe | None:
        """Return the recipe for the host. The library of a variant runs as it is installed."""
        if kind not in KINDS:
            raise ValueError(f"the kind of code is {kind!r}; expected one of {', '.join(KINDS)}")
        return _RECIPES.get(kind)

    def options(self) -> tuple[Option, ...]:
        """List the settings of the simulator."""
        return OPTIONS


plugin = Simulator()
