"""The interfaces that plugins implement.

A plugin is an object (usually an instance of a small class, at module level) that an entry point
names. The groups of entry points are ``pto.backends``, ``pto.runtimes``, ``pto.transports``,
``pto.schedulers``, ``pto.launchers``, ``pto.commands`` and ``pto.observers``. Users
select a plugin by the name of its entry point. A second entry point for the same object is an
alias.

Five interfaces name the parts of the design:

- :class:`Orchestrator`: graph functions submit tasks to it.
- :class:`Scheduler`: selects the child for a task without a pin.
- :class:`Endpoint`: the Worker's end of the connection to one child.
- :class:`Launcher`: starts agents on hosts, on which Workers can run, and ends them.
- :class:`Runtime`: a runtime variant, which runs the tasks of one chip.
"""

from pto_core.interfaces import parse
from pto_core.interfaces.backend import (
    KINDS,
    Backend,
    BuildRecipe,
    CardBackend,
    CardStage,
    DeviceBackend,
    DeviceLibrary,
    ForkSensitiveBackend,
    TensorSharingBackend,
)
from pto_core.interfaces.launcher import (
    AgentCommand,
    Launcher,
    LauncherPlugin,
    Pending,
    PlacedAgent,
    Placement,
)
from pto_core.interfaces.observer import CaseInfo, RunInfo, WorkerInfo
from pto_core.interfaces.orchestrator import Orchestrator
from pto_core.interfaces.plugin import (
    ABI_VERSION,
    API_VERSION,
    Command,
    Health,
    Option,
    Plugin,
    abi_include_dir,
)
from pto_core.interfaces.runtime import DeviceBuild, OrchestrationBuild, ProgramInterface, Runtime
from pto_core.interfaces.scheduler import (
    Candidate,
    PlacedTask,
    Policy,
    Scheduler,
    SchedulerPlugin,
)
from pto_core.interfaces.transport import (
    ChildEnd,
    Connection,
    Endpoint,
    NativeTransport,
    PythonTransport,
    Transport,
)

__all__ = [
    "ABI_VERSION",
    "API_VERSION",
    "KINDS",
    "AgentCommand",
    "Backend",
    "BuildRecipe",
    "Candidate",
    "CardBackend",
    "CardStage",
    "CaseInfo",
    "ChildEnd",
    "Command",
    "Connection",
    "DeviceBackend",
    "DeviceBuild",
    "DeviceLibrary",
    "Endpoint",
    "ForkSensitiveBackend",
    "Health",
    "Launcher",
    "LauncherPlugin",
    "NativeTransport",
    "Option",
    "OrchestrationBuild",
    "Orchestrator",
    "Pending",
    "PlacedAgent",
    "PlacedTask",
    "Placement",
    "Plugin",
    "Policy",
    "ProgramInterface",
    "PythonTransport",
    "RunInfo",
    "Runtime",
    "Scheduler",
    "SchedulerPlugin",
    "TensorSharingBackend",
    "Transport",
    "WorkerInfo",
    "abi_include_dir",
    "parse",
]
