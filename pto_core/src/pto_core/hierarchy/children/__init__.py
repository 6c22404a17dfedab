"""The code that child processes run, from their start until they are asked to close."""

from pto_core.hierarchy.children.chip import ChipBody
from pto_core.hierarchy.children.context import ChildContext
from pto_core.hierarchy.children.sub import SubBody
from pto_core.hierarchy.children.worker import NestedWorker, WorkerBody

__all__ = ["ChildContext", "ChipBody", "NestedWorker", "SubBody", "WorkerBody"]
