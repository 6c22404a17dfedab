"""Limit numerical libraries to one thread in each child, unless the user set another number.

Otherwise each child would have a thread pool of the machine's size, and the pools would compete for
the cores. Libraries read the environment variables when they are loaded. The limit of a library
that the parent has already loaded is set directly.
"""

from __future__ import annotations

from pto_core import _hierarchy
from pto_core.config.environment import adopt_environment, process_environment

_FOR_ALL = "OMP_NUM_THREADS"
_FAMILIES = {
    "openmp": _FOR_ALL,
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}


def limit_thread_pools() -> None:
    """Limit the pools that the user has not configured; called before other code of the child."""
    environment = process_environment()
    if _FOR_ALL in environment:
        return  # the other libraries read this variable too
    unset = {family: name for family, name in _FAMILIES.items() if name not in environment}
    _hierarchy.limit_thread_pools(
        threads=1,
        openmp="openmp" in unset,
        openblas="openblas" in unset,
        mkl="mkl" in unset,
        blis="blis" in unset,
    )
    adopt_environment(dict.fromkeys(unset.values(), "1"))
