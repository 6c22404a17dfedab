"""The errors that this framework raises.

All errors derive from :class:`PtoError`. A message states what happened, the values, and what to
change; the attributes hold the same facts. Pickling keeps all attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple


def _rebuild(cls: type[PtoError], message: str, fields: dict[str, Any]) -> PtoError:
    return cls(message, **fields)


# The function of a device's driver that failed, and the code that it returned; None: no such call.
_VENDOR = ("vendor_function", "vendor_code")


class PtoError(Exception):
    """The root of the error tree.

    ``fields`` lists the attributes of a class. Each attribute is set from the keyword of the same
    name and defaults to None. An unknown keyword is a ``TypeError``.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    exit_code: ClassVar[int] = 4
    """The exit code of ``pto`` for the error: 1 wrong result, 2 usage, 3 build, 4 run, 5 plugin."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        unknown = set(fields) - set(self.fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}")
        for name in self.fields:
            setattr(self, name, fields.get(name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Declare the attributes of ``fields`` for type checkers."""

    @property
    def message(self) -> str:
        """The whole message."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in self.fields}
        notes = getattr(self, "__notes__", None)
        state = None if notes is None else {"__notes__": list(notes)}
        return _rebuild, (type(self), self.message, fields), state


class UsageError(PtoError):
    """The caller broke a documented rule: ``value`` is invalid for the argument ``name``.

    If a run found it, ``code`` is -5, the published code. :class:`CapacityError`,
    :class:`DeadlockError` and :class:`TaskTimeoutError` have the published code, too.
    """

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "expected", "code", *_VENDOR)
    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown or its value is invalid; ``origin`` is the place where it was set."""

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "expected", "origin")


class UnsupportedError(UsageError):
    """The chosen backend or runtime does not support ``name``."""


class PluginError(PtoError):
    """A plugin cannot be used."""

    fields: ClassVar[tuple[str, ...]] = ("family", "plugin", "distribution", "version")
    exit_code = 2


class UnknownPluginError(PluginError):
    """No installed plugin has that name; ``known`` lists the installed names."""

    fields: ClassVar[tuple[str, ...]] = (*PluginError.fields, "known")


class DuplicatePluginError(PluginError):
    """Two installed distributions offer the same name."""


class PluginLoadError(PluginError):
    """Importing or checking the plugin failed; the ``__cause__`` is the reason."""


class PluginUnavailableError(PluginLoadError):
    """A plugin is not installed, or is unusable on this machine."""

    exit_code = 5


class PluginVersionError(PluginError):
    """The plugin was made for another version of the plugin interface or the native ABI."""

    fields: ClassVar[tuple[str, ...]] = (*PluginError.fields, "wanted", "found")


class BackendUnavailableError(PtoError):
    """The backend is installed but cannot run here; ``reason`` is the cause, ``fix`` the remedy."""

    fields: ClassVar[tuple[str, ...]] = ("backend", "reason", "fix")
    exit_code = 5


class CompileError(PtoError):
    """A compiler rejected a source; ``output`` is its output, ``command`` the command line."""

    fields: ClassVar[tuple[str, ...]] = ("source", "line", "command", "output", "compiler")
    exit_code = 3


class LoadError(PtoError):
    """A kernel or orchestration was built but cannot be loaded: a missing symbol, for example."""

    fields: ClassVar[tuple[str, ...]] = ("func_id", "kernel", *_VENDOR)
    exit_code = 3


class CapacityError(PtoError):
    """A limit was exceeded: ``value`` was requested, ``limit`` is available."""

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "limit", "code", *_VENDOR)


class DeviceMemoryError(CapacityError):
    """Device memory is exhausted."""


class AddressError(PtoError):
    """An address is outside live device memory, or a write exceeded a buffer."""

    fields: ClassVar[tuple[str, ...]] = ("task", "func_id", "core", "kernel", "address")


class GraphError(PtoError):
    """The task graph cannot be run."""

    fields: ClassVar[tuple[str, ...]] = ("task", "other_task")


class CycleError(GraphError):
    """The task graph has a cycle; the message names the tasks on it."""


class UnpublishedError(GraphError):
    """Tasks were added but not published."""


class RaceError(PtoError):
    """Tasks touch the same bytes, and nothing orders them: ``races`` pairs of tasks.

    ``first`` and ``second`` are the ids of the tasks of the first pair. If ``races`` is 0, the task
    ``first`` touched bytes that it does not declare.
    """

    exit_code = 1
    fields: ClassVar[tuple[str, ...]] = ("races", "first", "second")


class HostAccessError(RaceError):
    """The program touched an array that a task uses, and had not waited for the task.

    ``file`` and ``line``: the position of the submit; ``access_file`` and ``access_line``: that of
    the access, None if it is unknown.
    """

    fields: ClassVar[tuple[str, ...]] = (
        *RaceError.fields,
        "task",
        "callable",
        "file",
        "line",
        "access_file",
        "access_line",
    )


class DeadlockError(PtoError):
    """No task runs, and no task can start.

    The members describe a call of the orchestration that waits for an exhausted resource.
    ``resource`` names it (``"task ring"``, ``"heap ring"``, ``"dependency pool"``, ``"tensor
    map"``, ``"clusters"``), ``ring`` is the scope depth of its ring, ``current`` its size and
    ``needed`` the size that suffices, or a lower bound if the message says "at least".
    ``settings`` are those with which the program completes, or lower bounds, in the form for
    :func:`open_device`. ``kernel`` and ``func_id`` belong to the call; ``file`` and
    ``line`` are its position. Members that are unknown, or that do not apply, are None.
    """

    fields: ClassVar[tuple[str, ...]] = (
        "resource",
        "ring",
        "needed",
        "current",
        "settings",
        "kernel",
        "func_id",
        "file",
        "line",
        "code",
    )


class OrchestrationError(PtoError):
    """The orchestration returned ``code``, threw an exception, or crashed with ``signal``."""

    fields: ClassVar[tuple[str, ...]] = ("code", "signal")


class TaskFailedError(PtoError):
    """A task failed. The ``__cause__`` is its Python exception, if there is one.

    ``file`` and ``line``: the position of the submit. For a kernel: ``func_id``, ``core`` and
    ``kernel``. For a task of a Worker: ``callable`` is the name of its callable, ``path`` the child
    that ran it (``"L4/host0/sub1"``), ``remote_traceback`` the traceback in the child. The error of
    a run is its first failure; ``failures`` are the errors of the other failed tasks, and
    ``poisoned`` has a :class:`PoisonedTask` for each task that did not run because of a failure.
    """

    fields: ClassVar[tuple[str, ...]] = (
        "task",
        "func_id",
        "core",
        "kernel",
        "signal",
        "remote_traceback",
        "callable",
        "path",
        "file",
        "line",
        "failures",
        "poisoned",
        *_VENDOR,
    )


class PoisonedTask(NamedTuple):
    """A task that did not run because the task ``root``, one of its producers, failed."""

    task: int
    callable: str
    file: str | None
    line: int | None
    root: int | None


class TaskPoisonedError(PtoError):
    """The task did not run, because the task ``root``, one of its producers, failed."""

    fields: ClassVar[tuple[str, ...]] = ("task", "callable", "file", "line", "root")


class TaskTimeoutError(TaskFailedError, TimeoutError):
    """A kernel did not return in time. The device is lost unless the kernel returned later."""

    fields: ClassVar[tuple[str, ...]] = (*TaskFailedError.fields, "timeout_s", "code")


class AbortedError(PtoError):
    """The run was cancelled before it completed."""


class RunTimeoutError(AbortedError, TimeoutError):
    """The run exceeded its time limit and was cancelled; the device remains usable."""

    fields: ClassVar[tuple[str, ...]] = ("timeout_s",)


class DeviceLostError(PtoError):
    """The device was lost: a kernel did not return, or the device failed. Close it, open another.

    If the driver of the device reported the failure, ``vendor_function`` is its function and
    ``vendor_code`` its code. Other errors of a device have these fields, too.
    """

    fields: ClassVar[tuple[str, ...]] = ("device", *_VENDOR)


class EndpointError(PtoError):
    """A child cannot be reached or used; ``child`` is its number."""

    fields: ClassVar[tuple[str, ...]] = ("child",)


class EndpointClosedError(EndpointError):
    """The other end of a connection is closed, or its process is gone."""


class ProtocolError(EndpointError):
    """A child sent or received invalid data."""


class ChildStartError(EndpointError):
    """A child did not start or become ready; the ``__cause__`` is its exception."""

    fields: ClassVar[tuple[str, ...]] = (*EndpointError.fields, "path", "pid", "remote_traceback")


class ChildDiedError(EndpointError):
    """The process of a child ended, by ``signal`` or with ``exit_code``.

    ``task``, ``callable``, ``file`` and ``line`` describe the task that the child was running; they
    are None if it was idle. As the error of a run, it also has ``failures`` and ``poisoned``, like
    TaskFailedError.
    """

    fields: ClassVar[tuple[str, ...]] = (
        *EndpointError.fields,
        "path",
        "pid",
        "signal",
        "exit_code",
        "task",
        "callable",
        "file",
        "line",
        "failures",
        "poisoned",
    )


class ChildHungError(ChildDiedError, TimeoutError):
    """A task in the child exceeded its ``timeout_s``; the child was ended."""

    fields: ClassVar[tuple[str, ...]] = (*ChildDiedError.fields, "timeout_s")


class ControlError(EndpointError):
    """A child failed a control request; the ``__cause__`` is its exception."""

    fields: ClassVar[tuple[str, ...]] = (
        *EndpointError.fields,
        "path",
        "operation",
        "remote_traceback",
    )


class RemoteError(PtoError):
    """An exception from another host. Its class is not imported on this host.

    ``type_name`` is its class, ``remote_traceback`` its traceback as text.
    """

    fields: ClassVar[tuple[str, ...]] = ("type_name", "remote_traceback")


class BufferLostError(EndpointError):
    """The memory of a remote buffer is gone, because the session of its child has ended."""

    fields: ClassVar[tuple[str, ...]] = (*EndpointError.fields, "path", "address")


class LinkError(PtoError):
    """A link cannot be opened at ``address``, or was closed."""

    fields: ClassVar[tuple[str, ...]] = ("address",)


class RightsError(PtoError):
    """A host refuses a callable, because the client has no right for it; ``name`` is the right."""

    fields: ClassVar[tuple[str, ...]] = ("name",)


class WorkerClosedError(UsageError):
    """The Worker is closed or not running; create a new Worker."""


class WrongResultError(PtoError):
    """An output differs from its reference by more than the tolerance."""

    fields: ClassVar[tuple[str, ...]] = (
        "tensor",
        "index",
        "actual",
        "expected",
        "mismatches",
        "total",
        "rtol",
        "atol",
    )
    exit_code = 1


class InternalError(PtoError):
    """A bug of the framework, not of the program."""

    fields: ClassVar[tuple[str, ...]] = _VENDOR
