"""The launcher ``ray``: it places agents on the nodes of a Ray cluster, one in each Ray actor."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pto_core.interfaces import API_VERSION, AgentCommand, Health

if TYPE_CHECKING:
    from pto_launcher_ray.launcher import RayLauncher


class RayPlugin:
    """The plugin. It imports Ray only in :meth:`open`, so it can be listed without Ray."""

    name = "ray"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self) -> Health:
        """Return whether Ray is installed."""
        if importlib.util.find_spec("ray") is None:
            return Health(False, "Ray is not installed", "pip install 'ray>=2.60'")
        return Health(ok=True)

    def open(self, agent: AgentCommand, config: Mapping[str, Any]) -> RayLauncher:
        """Connect to a cluster that runs, and return a launcher. Raises UsageError, LinkError."""
        from pto_launcher_ray.launcher import RayLauncher

        return RayLauncher(agent, config.get("ray_address"))


plugin = RayPlugin()
