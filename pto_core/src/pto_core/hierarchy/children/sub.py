"""A child that runs Python functions: ``function(args)``, or ``function()`` if it takes none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core.hierarchy.children.service import serve

if TYPE_CHECKING:
    from pto_core.hierarchy.children.post import Post
    from pto_core.hierarchy.processes import ChildStart


@dataclass(frozen=True)
class SubBody:
    """The body of a SUB child."""

    post: Post

    def __call__(self, start: ChildStart) -> None:
        """Be the child."""
        serve(start, self.post)
