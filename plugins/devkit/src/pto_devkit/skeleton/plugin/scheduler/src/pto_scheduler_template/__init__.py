"""The placement policy ``template``: selects the children in rotation."""

from __future__ import annotations

from collections.abc import Sequence

from pto_core.interfaces import API_VERSION, Health


class Turns:
    """A policy that selects the children in rotation and skips those without free space."""

    def __init__(self) -> None:
        self.last = -1

    def __call__(self, candidates: Sequence[tuple[int, int]], preferred: int) -> int:
        """Select the child after the last selected child; candidates: (child, frames in flight)."""
        children = [child for child, _ in candidates]
        later = [child for child in children if child > self.last]
        self.last = later[0] if later else children[0]
        return self.last


class TemplateScheduler:
    """The plugin, which creates a policy for each Worker."""

    name = "template"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return whether the plugin works on this machine."""
        return Health(ok=True)

    def policy(self) -> Turns:
        """Return a new policy for one Worker."""
        return Turns()


plugin = TemplateScheduler()
