"""The conformance kit: contract tests for every family of plugins.

A plugin's whole test file::

    from pto_core.testing import BackendContract

    class TestMyChip(BackendContract):
        backend = "mychip"

A contract tests the capabilities that a plugin claims. A test whose capabilities the plugin does
not claim is not collected; a plugin that claims a capability without having it fails the test.
Every test is a plain function ``check_*`` of one subject (:class:`BackendSubject`,
:class:`RuntimeSubject`, :class:`TransportSubject`, :class:`LinkSubject`, :class:`SchedulerSubject`
or :class:`LauncherSubject`), in the modules ``memory``, ``topology``, ``dispatch``, ``claims``,
``device_code``, ``ordering``, ``graph_errors``, ``public_api``, and those of ``transports``,
``links``, ``schedulers`` and ``launchers``. It raises :class:`ContractError`, and its docstring
states the contract. Only the test classes need pytest.
"""

from pto_core.testing.capabilities import contract_test
from pto_core.testing.contracts import BackendContract, RuntimeContract
from pto_core.testing.failure import ContractError, expect
from pto_core.testing.graphs import Graph
from pto_core.testing.launchers import LauncherSubject
from pto_core.testing.launchers.contract import LauncherContract
from pto_core.testing.links import LinkSubject
from pto_core.testing.links.contract import LinkContract
from pto_core.testing.native import NativeBackend, NativeDevice, NativeRuntime, StatusError
from pto_core.testing.probe import Probe, Work
from pto_core.testing.schedulers import SchedulerSubject
from pto_core.testing.schedulers.contract import SchedulerContract
from pto_core.testing.session import Session
from pto_core.testing.subjects import BackendSubject, RuntimeSubject
from pto_core.testing.transports import TransportSubject
from pto_core.testing.transports.contract import TransportContract

__all__ = [
    "BackendContract",
    "BackendSubject",
    "ContractError",
    "Graph",
    "LauncherContract",
    "LauncherSubject",
    "LinkContract",
    "LinkSubject",
    "NativeBackend",
    "NativeDevice",
    "NativeRuntime",
    "Probe",
    "RuntimeContract",
    "RuntimeSubject",
    "SchedulerContract",
    "SchedulerSubject",
    "Session",
    "StatusError",
    "TransportContract",
    "TransportSubject",
    "Work",
    "contract_test",
    "expect",
]
