"""A child that runs Python functions: ``function(args)``, or ``function()`` without parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pto_core import log
from pto_core.hierarchy.children.service import serve

if TYPE_CHECKING:
    from pto_core.config import Config
    from pto_core.hierarchy.children.context import ChildContext
    from pto_core.hierarchy.processes import ChildStart


@dataclass(frozen=True)
class SubBody:
    """The body of a SUB child. ``config`` contains the settings of the log."""

    context: ChildContext
    config: Config

    def __call__(self, start: ChildStart) -> None:
        """Run tasks until the parent asks the child to close."""
        log.configure(self.config)
        serve(start, self.context)
