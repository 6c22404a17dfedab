"""The engines and the policies of this package, as plugins of the group ``pto.schedulers``."""

from __future__ import annotations

from pto_core._hierarchy import NearInputs
from pto_core.hierarchy.engine.configuration import Configuration
from pto_core.hierarchy.engine.native import NativeEngine
from pto_core.hierarchy.engine.policy import least_loaded
from pto_core.hierarchy.engine.reference import ReferenceEngine
from pto_core.interfaces import API_VERSION, EnginePolicy, Health, Policy


class _Builtin:
    """The members that all plugins of this module share."""

    api_version = API_VERSION

    def health(self) -> Health:
        """Return a healthy state: the plugin works on every machine."""
        return Health(ok=True)


class Native(_Builtin):
    """The plugin of the engine in C++, which is the default."""

    name = "native"
    capabilities = frozenset({"engine", "reference_order"})

    def engine(self, configuration: Configuration, policy: Policy | EnginePolicy) -> NativeEngine:
        """Return a native engine."""
        return NativeEngine(configuration, policy=policy)


class Reference(_Builtin):
    """The plugin of the engine in Python, which specifies the behaviour of the native engine."""

    name = "reference"
    capabilities = frozenset({"engine", "reference_order"})

    def engine(
        self, configuration: Configuration, policy: Policy | EnginePolicy
    ) -> ReferenceEngine:
        """Return a reference engine."""
        return ReferenceEngine(configuration, policy=policy)


class LeastLoaded(_Builtin):
    """The plugin of the policy that balances the frames in flight."""

    name = "least_loaded"
    capabilities = frozenset({"policy"})

    def policy(self) -> Policy:
        """Return the policy. It has no state, so all Workers share one object."""
        return least_loaded


class NearInputsPlugin(_Builtin):
    """The plugin of the policy that prefers the host that has the inputs of a task."""

    name = "near_inputs"
    capabilities = frozenset({"policy"})

    def policy(self) -> NearInputs:
        """Return the policy of one Worker, whose driver reports the tasks that it sends."""
        return NearInputs()


native = Native()
reference = Reference()
least_loaded_plugin = LeastLoaded()
near_inputs = NearInputsPlugin()
