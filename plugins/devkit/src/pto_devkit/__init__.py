"""The conformance kit: contract tests for every family of plugins.

A plugin's whole test file::

    from pto_devkit import BackendContract

    class TestMyChip(BackendContract):
        backend = "mychip"

A contract tests the capabilities that a plugin claims. A test whose capabilities the plugin does
not claim is not collected; a plugin that claims a capability without having it fails the test.
Every test is a plain function ``check_*`` of one subject (:class:`BackendSubject`,
:class:`RuntimeSubject`, :class:`TransportSubject` or :class:`SchedulerSubject`), in the modules
``memory``, ``topology``, ``dispatch``, ``claims``, ``device_code``, ``ordering``, ``graph_errors``,
``public_api``, and those of ``transports`` and ``schedulers``. It raises :class:`ContractError`,
and its docstring states the contract. Only the test classes need pytest.

The contract of launchers is in :mod:`pto_devkit.launchers`, which needs ``ptorun-transport-zmq``.
"""

from pto_devkit.checks import ContractError, contract_test, expect
from pto_devkit.contracts import BackendContract, RuntimeContract
from pto_devkit.graphs import Graph
from pto_devkit.native import NativeBackend, NativeDevice, NativeRuntime, StatusError
from pto_devkit.probe import Probe, Work
from pto_devkit.schedulers import SchedulerSubject
from pto_devkit.schedulers.contract import SchedulerContract
from pto_devkit.session import RuntimeSession
from pto_devkit.subjects import BackendSubject, RuntimeSubject
from pto_devkit.transports import TransportSubject
from pto_devkit.transports.contract import TransportContract

__all__ = [
    "BackendContract",
    "BackendSubject",
    "ContractError",
    "Graph",
    "NativeBackend",
    "NativeDevice",
    "NativeRuntime",
    "Probe",
    "RuntimeContract",
    "RuntimeSession",
    "RuntimeSubject",
    "SchedulerContract",
    "SchedulerSubject",
    "StatusError",
    "TransportContract",
    "TransportSubject",
    "Work",
    "contract_test",
    "expect",
]
