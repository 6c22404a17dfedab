"""The module ``simpler.worker``: the Worker of programs."""

from pto_compat_simpler.worker import (
    RunHandle as RunHandle,
    Worker as Worker,
)
