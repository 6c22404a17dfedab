"""The error classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple


def _rebuild(cls: type[PtoError], message: str, fields: dict[str, Any]) -> PtoError:
    return cls(message, **fields)


class PtoError(Exception):
    """The root of the tree.

    ``fields`` names the attributes that a class carries; each is set from the keyword of the same
    name, ``None`` when it was not given. An unknown keyword is a ``TypeError``.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    exit_code: ClassVar[int] = 4
    """What the ``pto`` command exits with: 1 wrong result, 2 usage, 3 build, 4 run, 5 backend."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        unknown = set(fields) - set(self.fields)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}")
        for name in self.fields:
            setattr(self, name, fields.get(name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Tell type checkers that the attributes are those of ``fields``."""

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
    """The caller broke a documented rule: ``value`` was given for ``name``."""

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "expected")
    exit_code = 2


class ConfigError(UsageError):
    """A setting is unknown or has a value that it cannot have; ``origin`` says where it was set."""

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "expected", "origin")


class UnsupportedError(UsageError):
    """The chosen backend or runtime does not offer what was asked for (``name``)."""


class PluginError(PtoError):
    """A plugin cannot be used."""

    fields: ClassVar[tuple[str, ...]] = ("family", "plugin", "distribution", "version")
    exit_code = 2


class UnknownPluginError(PluginError):
    """No installed plugin has that name; ``known`` lists those that exist."""

    fields: ClassVar[tuple[str, ...]] = (*PluginError.fields, "known")


class DuplicatePluginError(PluginError):
    """Two installed distributions offer the same name."""


class PluginLoadError(PluginError):
    """Importing or checking the plugin failed; the cause is chained."""


class PluginVersionError(PluginError):
    """The plugin was made for another version of the plugin interface or the native ABI."""

    fields: ClassVar[tuple[str, ...]] = (*PluginError.fields, "wanted", "found")


class BackendUnavailableError(PtoError):
    """The backend is installed but cannot run here; ``reason`` says why, ``fix`` what to do."""

    fields: ClassVar[tuple[str, ...]] = ("backend", "reason", "fix")
    exit_code = 5


class CompileError(PtoError):
    """A compiler refused a source; ``output`` is what it said, ``command`` how it was called."""

    fields: ClassVar[tuple[str, ...]] = ("source", "line", "command", "output", "compiler")
    exit_code = 3


class LoadError(PtoError):
    """A kernel or an orchestration was built but cannot be loaded: a symbol is missing, say."""

    fields: ClassVar[tuple[str, ...]] = ("func_id", "kernel")
    exit_code = 3


class CapacityError(PtoError):
    """A limit was reached: ``value`` was asked for, ``limit`` is what there is."""

    fields: ClassVar[tuple[str, ...]] = ("name", "value", "limit")


class DeviceMemoryError(CapacityError):
    """Device memory is exhausted."""


class AddressError(PtoError):
    """An address is outside live device memory, or a write went past a buffer."""

    fields: ClassVar[tuple[str, ...]] = ("task", "func_id", "core", "kernel", "address")


class GraphError(PtoError):
    """The task graph cannot be run."""

    fields: ClassVar[tuple[str, ...]] = ("task", "other_task")


class CycleError(GraphError):
    """The task graph has a cycle; the message names the tasks on it."""


class UnpublishedError(GraphError):
    """Tasks were added that nobody published."""


class DeadlockError(PtoError):
    """Nothing runs and nothing can.

    Where a call of the orchestration waits for something that is exhausted: ``resource`` says what
    (``"task ring"``, ``"heap ring"``, ``"dependency pool"``, ``"tensor map"``, ``"clusters"``),
    ``ring`` of which depth, ``current`` how much there is and ``needed`` how much would suffice;
    ``settings`` are those with which the program gets through, as :func:`open_device` takes them;
    ``kernel`` and ``func_id`` are of the call, ``file`` and ``line`` where it was made. What is not
    known is None.
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
    )


class OrchestrationError(PtoError):
    """The orchestration reported a failure by returning ``code``."""

    fields: ClassVar[tuple[str, ...]] = ("code",)


class TaskFailedError(PtoError):
    """A task failed. Its own Python exception, where there is one, is the ``__cause__``.

    ``file`` and ``line`` are where it was submitted. Of a kernel: ``func_id``, ``core`` and
    ``kernel``. Of a task of a Worker: ``callable`` is the name of its callable, ``path`` the child
    that ran it (``"L4/host0/sub1"``), ``remote_traceback`` what the child would have printed. As
    the error of a run it is the first failure; ``failures`` are the errors of the other tasks that
    failed and ``poisoned`` the :class:`PoisonedTask` of each task that did not run because of one.
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
    )


class PoisonedTask(NamedTuple):
    """A task that did not run because ``root``, a task that it depends on, failed."""

    task: int
    callable: str
    file: str | None
    line: int | None
    root: int | None


class TaskPoisonedError(PtoError):
    """The task did not run: the task ``root``, on which it depends, failed; that is the cause."""

    fields: ClassVar[tuple[str, ...]] = ("task", "callable", "file", "line", "root")


class TaskTimeoutError(TaskFailedError, TimeoutError):
    """A kernel did not return in time; the device is lost unless it did so soon afterwards."""

    fields: ClassVar[tuple[str, ...]] = (*TaskFailedError.fields, "timeout_s")


class AbortedError(PtoError):
    """The run was ended from outside before it was done."""


class RunTimeoutError(AbortedError, TimeoutError):
    """The run took longer than its limit and was ended; the device can be used again."""

    fields: ClassVar[tuple[str, ...]] = ("timeout_s",)


class DeviceLostError(PtoError):
    """The device gave up on a kernel that does not return; close it and open another."""

    fields: ClassVar[tuple[str, ...]] = ("device",)


class EndpointError(PtoError):
    """A child cannot be reached or used any more; ``child`` is its number."""

    fields: ClassVar[tuple[str, ...]] = ("child",)


class EndpointClosedError(EndpointError):
    """The other end of a connection is closed, or the process that had it is gone."""


class ProtocolError(EndpointError):
    """A child reported what cannot be: what it was sent does not fit, or was never sent."""


class ChildStartError(EndpointError):
    """A child could not be started, or did not get ready; what it raised is the ``__cause__``."""

    fields: ClassVar[tuple[str, ...]] = (*EndpointError.fields, "path", "pid", "remote_traceback")


class ChildDiedError(EndpointError):
    """The process of a child is gone: ended by ``signal``, or by itself with ``exit_code``.

    ``task``, ``callable``, ``file`` and ``line`` are of the task that it was running, None when it
    was idle. As the error of a run it also has ``failures`` and ``poisoned``, as TaskFailedError.
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
    """A task in the child took longer than its ``timeout_s``; the child was ended."""

    fields: ClassVar[tuple[str, ...]] = (*ChildDiedError.fields, "timeout_s")


class ControlError(EndpointError):
    """A child could not do what it was asked beside tasks; what it raised is the ``__cause__``."""

    fields: ClassVar[tuple[str, ...]] = (
        *EndpointError.fields,
        "path",
        "operation",
        "remote_traceback",
    )


class WorkerClosedError(UsageError):
    """The Worker was closed, or is not running any more; make another one."""


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
