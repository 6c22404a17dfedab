"""The code that child processes run, from their start until they are asked to close."""

from pto_core.worker.children.chip import ChipBody, refuse_fork_with_vendor_libraries
from pto_core.worker.children.service import ChildContext, NestedWorker, SubBody, WorkerBody

__all__ = [
    "ChildContext",
    "ChipBody",
    "NestedWorker",
    "SubBody",
    "WorkerBody",
    "refuse_fork_with_vendor_libraries",
]
