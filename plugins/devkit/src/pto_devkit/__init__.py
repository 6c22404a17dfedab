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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pto_devkit.checks import (
        ContractError as ContractError,
        contract_test as contract_test,
        expect as expect,
    )
    from pto_devkit.contracts import (
        BackendContract as BackendContract,
        RuntimeContract as RuntimeContract,
    )
    from pto_devkit.graphs import Graph as Graph
    from pto_devkit.native import (
        NativeBackend as NativeBackend,
        NativeDevice as NativeDevice,
        NativeRuntime as NativeRuntime,
        StatusError as StatusError,
    )
    from pto_devkit.probe import Probe as Probe, Work as Work
    from pto_devkit.schedulers import SchedulerSubject as SchedulerSubject
    from pto_devkit.schedulers.contract import SchedulerContract as SchedulerContract
    from pto_devkit.session import RuntimeSession as RuntimeSession
    from pto_devkit.subjects import (
        BackendSubject as BackendSubject,
        RuntimeSubject as RuntimeSubject,
    )
    from pto_devkit.transports import TransportSubject as TransportSubject
    from pto_devkit.transports.contract import TransportContract as TransportContract

# A command of this package needs no part of the kit, so each is imported at its first use.
_PARTS = {
    "checks": (
        "ContractError",
        "contract_test",
        "expect",
    ),
    "contracts": (
        "BackendContract",
        "RuntimeContract",
    ),
    "graphs": ("Graph",),
    "native": (
        "NativeBackend",
        "NativeDevice",
        "NativeRuntime",
        "StatusError",
    ),
    "probe": (
        "Probe",
        "Work",
    ),
    "schedulers": ("SchedulerSubject",),
    "schedulers.contract": ("SchedulerContract",),
    "session": ("RuntimeSession",),
    "subjects": (
        "BackendSubject",
        "RuntimeSubject",
    ),
    "transports": ("TransportSubject",),
    "transports.contract": ("TransportContract",),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}

__all__ = sorted(_PART_OF)


def __getattr__(name: str) -> Any:
    if name not in _PART_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PART_OF[name]}"), name)
