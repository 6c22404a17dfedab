"""What a child is: the body of its process, from its start to the request to close."""

from pto_core.hierarchy.children.chip import ChipBody
from pto_core.hierarchy.children.post import Post
from pto_core.hierarchy.children.sub import SubBody
from pto_core.hierarchy.children.worker import WorkerBody

__all__ = ["ChipBody", "Post", "SubBody", "WorkerBody"]
