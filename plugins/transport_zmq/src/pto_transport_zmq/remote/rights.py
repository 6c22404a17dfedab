"""The rights of a client of an agent, and the check of its requests against them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from pto_core.config import Config
from pto_core.errors import CapacityError, ConfigError, RightsError, UsageError
from pto_core.interfaces.parse import size_bytes
from pto_core.kernels import CallConfig
from pto_core.trust import reason_for_distrust
from pto_core.worker.serialisation import is_in_modules
from pto_transport_zmq.remote.blueprint import Blueprint, CallableRecord
from pto_transport_zmq.remote.callables import (
    AnyDelivery,
    AnyPart,
    ImportedFunction,
    PortableChip,
    SerialisedFunction,
)
from pto_transport_zmq.remote.program_modules import top_levels
from pto_transport_zmq.remote.requests import (
    Configure,
    Deliver,
    ReceiveBuffer,
    Request,
    SendBuffer,
)


class Needs(NamedTuple):
    """The resources of a host that sessions may use.

    ``processes``: gateways, Workers and their children. ``memory``: bytes of shadow memory and
    buffers. ``tasks``: tasks in flight.
    """

    processes: int = 0
    memory: int = 0
    tasks: int = 0


_QUOTAS = (
    ("processes", "processes", ""),
    (
        "memory",
        "bytes of shadow memory and buffers",
        "; set a smaller remote_memory_limit or remote_buffer_limit",
    ),
    ("tasks", "tasks in flight", "; set a smaller child_window"),
)


Quota = Annotated[int, msgspec.Meta(ge=0)]


class Rights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of one client key.

    ``processes``, ``memory``, ``tasks``: the limits for all sessions of the client together, see
    :class:`Needs`; None means no limit. ``python_code``: whether Python functions and modules may
    arrive by code. ``native_code``: whether C++ sources and libraries may arrive. ``imports``: the
    modules that may define imported functions, with their submodules; None means every module.
    ``host_copies``: whether this host may connect to hosts that the client names, and listen for
    them. ``host_settings``: whether the client may choose programs and folders of this host.
    ``admin``: whether the client may drain and stop the agent, and see the sessions of other
    clients.
    """

    name: str
    key: str
    processes: Quota | None = 1024
    memory: Quota | None = None
    tasks: Quota | None = None
    python_code: bool = True
    native_code: bool = True
    imports: tuple[str, ...] | None = None
    host_copies: bool = True
    host_settings: bool = False
    admin: bool = False

    @classmethod
    def of_owner(cls, name: str, key: str) -> Rights:
        """Return the rights of the owner of a host, which are all rights."""
        return cls(name, key, host_settings=True, admin=True)

    def check_quotas(self, wanted: Needs, used: Needs) -> None:
        """Raise CapacityError for a session beyond a quota. ``used``: by all other sessions."""
        for name, unit, advice in _QUOTAS:
            limit = getattr(self, name)
            value = getattr(wanted, name) + getattr(used, name)
            if limit is not None and value > limit:
                raise CapacityError(
                    f"the sessions of client {self.name} would have {value} {unit} on this host; "
                    f"its limit is {limit}{advice}",
                    name=name,
                    value=value,
                    limit=limit,
                )

    def check_admin(self, action: str) -> None:
        """Raise RightsError if the client may not administrate the agent."""
        if not self.admin:
            raise RightsError(
                f"client {self.name} may not {action} this agent; set admin = true in the "
                "agent's list of clients, or send SIGTERM to the agent on its host",
                name="admin",
            )

    def check_settings(self, config: Config) -> None:
        """Raise RightsError if the client sets a program or folder here without the right."""
        chosen = [one.key for one in config.settings() if one.option.is_of_host and one.is_argument]
        if chosen and not self.host_settings:
            raise RightsError(
                f"the setting {chosen[0]} chooses a program or folder of this host, which client "
                f"{self.name} may not; remove it, or set host_settings = true in the agent's "
                "list of clients",
                name=chosen[0],
            )

    def permitted(self, blueprint: Blueprint) -> Blueprint:
        """Return a blueprint with only the permitted deliveries.

        Raises RightsError if no delivery of a callable is permitted.
        """
        return msgspec.structs.replace(
            blueprint,
            callables=self.permitted_callables(blueprint.callables),
            workers=[self.permitted(one) for one in blueprint.workers],
        )

    def permitted_callables(self, records: Iterable[CallableRecord]) -> list[CallableRecord]:
        """Return callables with only their permitted deliveries.

        Raises RightsError if no delivery of a callable is permitted.
        """
        return [
            msgspec.structs.replace(one, deliveries=self._permitted(one.name, one.deliveries))
            for one in records
        ]

    def permitted_modules(self, sources: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the sources of modules if Python code is permitted; raise RightsError."""
        for name in top_levels(sources)[:1]:
            if refusal := self._missing(name, "Python code", "python_code", has=self.python_code):
                raise RightsError(refusal, name="rights")
        return sources

    def permitted_request(self, request: Request) -> Request:
        """Return a control request with only its permitted deliveries.

        Raises RightsError if no delivery of it is permitted, or if the client may not send it.
        """
        if isinstance(request, ReceiveBuffer | SendBuffer) and not self.host_copies:
            raise RightsError(
                f"client {self.name} may not copy buffers between this host and another one; set "
                "host_copies = true in the agent's list of clients",
                name="host_copies",
            )
        if isinstance(request, Configure):
            self._check_prefix(CallConfig.unpack(request.packed).output_prefix)
        if not isinstance(request, Deliver):
            return request
        left = self._permitted("a callable", request.deliveries)
        return msgspec.structs.replace(request, deliveries=left)

    def _check_prefix(self, prefix: str) -> None:
        """Raise RightsError if the client chooses where files are written without the right."""
        if prefix and not self.host_settings:
            raise RightsError(
                f"the output_prefix {prefix!r} chooses a folder of this host, which client "
                f"{self.name} may not; use a CallConfig without it for tasks on this host, or set "
                "host_settings = true in the agent's list of clients",
                name="host_settings",
            )

    def _permitted(self, name: str, deliveries: Sequence[AnyDelivery]) -> list[AnyDelivery]:
        refusals = [self._refusal(name, one) for one in deliveries]
        left = [one for one, refusal in zip(deliveries, refusals, strict=True) if not refusal]
        if not left:
            raise RightsError("; ".join(filter(None, refusals)), name="rights")
        return left

    def _refusal(self, name: str, delivery: AnyDelivery | AnyPart) -> str:
        """Return why a delivery is not permitted; empty if it is."""
        if isinstance(delivery, PortableChip):
            return next(filter(None, (self._refusal(name, part) for part in delivery.parts)), "")
        if isinstance(delivery, SerialisedFunction):
            return self._missing(name, "Python code", "python_code", has=self.python_code)
        if not isinstance(delivery, ImportedFunction):
            return self._missing(name, "native code", "native_code", has=self.native_code)
        module = delivery.path.partition(":")[0]
        if self.imports is None or is_in_modules(module, self.imports):
            return ""
        return (
            f"{name} is in the module {module}, which this host does not permit to client "
            f"{self.name}; add the module to imports in the agent's list of clients"
        )

    def _missing(self, name: str, what: str, right: str, *, has: bool) -> str:
        if has:
            return ""
        return (
            f"{name} has {what}, which this host does not accept from client {self.name}; set "
            f"{right} = true in the agent's list of clients"
        )


def read_rights(file: Path) -> list[Rights]:
    """Return the clients of a file; raise ConfigError, and UsageError for a key of two clients.

    The file has a table ``[[client]]`` for each client, with ``name``, ``key`` and the members of
    :class:`Rights` that differ from the defaults.
    """
    try:
        if (reason := reason_for_distrust(file)) is not None:
            raise ValueError(reason)
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        tables = content.pop("client")
        if content or not isinstance(tables, list) or not tables:
            raise ValueError("it needs tables [[client]] and nothing else")
        clients = [_rights(table) for table in tables]
        _check_keys(file, clients)
        return clients
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, TypeError, KeyError, RecursionError, msgspec.ValidationError) as error:
        reason = str(error) if not isinstance(error, KeyError) else f"{error} is missing"
    raise ConfigError(
        f"the list of clients {file} cannot be used: {reason}", name="--allow", value=str(file)
    )


def _check_keys(file: Path, clients: Sequence[Rights]) -> None:
    """Raise UsageError if two clients have the same key."""
    names: dict[str, str] = {}
    for one in clients:
        if one.key in names:
            raise UsageError(
                f"the list of clients {file} has the key {one.key} for {names[one.key]} and for "
                f"{one.name}; keep one table for each key",
                name="--allow",
                value=str(file),
            )
        names[one.key] = one.name


def _rights(table: object) -> Rights:
    if isinstance(table, dict) and isinstance(table.get("memory"), str):
        table["memory"] = size_bytes(table["memory"])
    return msgspec.convert(table, Rights)
