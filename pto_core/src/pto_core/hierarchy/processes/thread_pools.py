"""Threads of numerical libraries in children: one each, unless the user said otherwise.

Several children with a pool the size of the machine each would only be in each other's way. A
variable counts when a library is loaded; one that the parent has loaded already is told.
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
    """Set what the user has not; called in a child before anything of the user's."""
    environment = process_environment()
    if _FOR_ALL in environment:
        return  # the others follow it unless they are set themselves
    unset = {family: name for family, name in _FAMILIES.items() if name not in environment}
    _hierarchy.limit_thread_pools(
        threads=1,
        openmp="openmp" in unset,
        openblas="openblas" in unset,
        mkl="mkl" in unset,
        blis="blis" in unset,
    )
    adopt_environment(dict.fromkeys(unset.values(), "1"))
