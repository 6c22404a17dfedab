"""Limit numerical libraries to one thread per child, unless the user has set another number.

Otherwise each child would have a thread for every core of the machine, and the children would
compete for the cores. Libraries read the environment variables when they are loaded. If the parent
has already loaded a library, its limit is set by a call.
"""

from __future__ import annotations

from pto_core import _hierarchy
from pto_core.config import adopt_environment, process_environment

_FOR_ALL = "OMP_NUM_THREADS"
_FAMILIES = {
    "openmp": _FOR_ALL,
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
}


def limit_thread_pools() -> None:
    """Limit the thread pools that the user has not configured; called first in a child."""
    environment = process_environment()
    if _FOR_ALL in environment:
        return  # the libraries of all families read this variable
    unset = {family: name for family, name in _FAMILIES.items() if name not in environment}
    _hierarchy.limit_thread_pools(
        threads=1,
        openmp="openmp" in unset,
        openblas="openblas" in unset,
        mkl="mkl" in unset,
        blis="blis" in unset,
    )
    adopt_environment(dict.fromkeys(unset.values(), "1"))
