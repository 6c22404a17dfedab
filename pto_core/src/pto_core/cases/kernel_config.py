"""``kernel_config.py``: the kernels of a case, its orchestration and its settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pto_core._native import integer
from pto_core.cases.user_module import load_module, required, warn_of_misspelt
from pto_core.errors import UsageError
from pto_core.errors.values import shown, suggestion
from pto_core.kernels.direction import Parameter, parse_signature

# pypto states with "external" that a source was written by hand, and with "enable_sdma" that a
# program uses a transfer engine of the card. Neither has an effect here.
_KERNEL_KEYS = (
    *("func_id", "source", "core_type", "name", "function_name", "signature"),
    *("extra_include_dirs", "external", "enable_sdma"),
)
_ORCHESTRATION_KEYS = ("source", "function_name", "signature", "api", "enable_sdma")
_OPTIONAL = ("RUNTIME_CONFIG", "RUNTIME_ENV")
_CORE_TYPES = ("aic", "aiv")
# Keys of RUNTIME_CONFIG that only later versions of the published runner read, each with advice. A
# warning is shown for them.
_LATER_SETTINGS = {
    "rounds": "use --repeat N to run a case N times",
    "orch_thread_num": "every run has one orchestrator thread",
    "enable_sdma": "simulated devices have no such transfer engine",
}
_LARGEST_FUNC_ID = 4095  # the size of every runtime's kernel table

_Chosen = TypeVar("_Chosen")


@dataclass(frozen=True)
class KernelEntry:
    """One entry of ``KERNELS``. If ``source`` ends in ``.py``, ``function`` is a Python kernel."""

    func_id: int
    source: Path
    core_type: str
    name: str
    function: str | None
    signature: tuple[Parameter, ...] | None
    include_dirs: tuple[Path, ...] = ()

    @property
    def is_python(self) -> bool:
        """Whether the kernel is a Python function."""
        return self.source.suffix == ".py"


@dataclass(frozen=True)
class OrchestrationEntry:
    """The orchestration for one runtime. If ``source`` ends in ``.py``, it is a Python function."""

    source: Path
    function: str | None
    signature: tuple[Parameter, ...] | None
    api: str | None

    @property
    def is_python(self) -> bool:
        """Whether the orchestration is a Python function."""
        return self.source.suffix == ".py"


@dataclass(frozen=True)
class KernelConfig:
    """The checked content of ``kernel_config.py``.

    ``kernel_lists`` and ``orchestrations`` are keyed by the name of a runtime; the name "" stands
    for every runtime. ``warnings`` names the keys of RUNTIME_CONFIG that have no effect;
    ``settings`` omits them.
    """

    path: Path
    kernel_lists: Mapping[str, tuple[KernelEntry, ...]]
    orchestrations: Mapping[str, OrchestrationEntry]
    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def kernels(self, runtime: str) -> tuple[KernelEntry, ...]:
        """Return the kernels for ``runtime``; raises UsageError if there are none."""
        return self._chosen("KERNELS", self.kernel_lists, runtime)

    def orchestration(self, runtime: str) -> OrchestrationEntry:
        """Return the orchestration for ``runtime``; raises UsageError if there is none."""
        return self._chosen("ORCHESTRATION", self.orchestrations, runtime)

    def of_one_runtime(self, runtime: str) -> KernelConfig:
        """Return a copy whose entries for ``runtime`` are those for every runtime."""
        kernels, orchestration = self.kernels(runtime), self.orchestration(runtime)
        return replace(self, kernel_lists={"": kernels}, orchestrations={"": orchestration})

    def _chosen(self, name: str, by_runtime: Mapping[str, _Chosen], runtime: str) -> _Chosen:
        found = by_runtime.get("", by_runtime.get(runtime))
        if found is None:
            known = ", ".join(by_runtime)
            raise UsageError(
                f"{self.path}: {name} has no entry for the runtime {runtime!r}; it has entries for "
                f"{known}; choose one with -r, or add {runtime!r}",
                name=name,
                value=runtime,
                expected=known,
            )
        return found


def load_kernel_config(path: Path) -> KernelConfig:
    """Execute and check the file. A mistake raises a UsageError that names the file and the key."""
    module = load_module(path)
    warn_of_misspelt(module, _OPTIONAL, path)
    check = _Check(path)
    kernels = required(module, "KERNELS", "a list of {func_id, source, core_type} dicts")
    orchestration = required(module, "ORCHESTRATION", "a dict {source, function_name}")
    settings = check.mapping("RUNTIME_CONFIG", getattr(module, "RUNTIME_CONFIG", {}))
    environment = check.mapping("RUNTIME_ENV", getattr(module, "RUNTIME_ENV", {}))
    for name, value in environment.items():
        if not (_is_variable(name) and _is_variable(value)) or not name or "=" in name:
            raise check.wrong(f"RUNTIME_ENV[{shown(name)}]", value, "a text for a variable")
    return KernelConfig(
        path=path,
        kernel_lists=_kernel_lists(check, kernels),
        orchestrations=_orchestrations(check, orchestration),
        settings={key: settings[key] for key in settings if key not in _LATER_SETTINGS},
        environment=environment,
        warnings=tuple(
            f"{path}: RUNTIME_CONFIG[{key!r}] = {shown(settings[key])} has no effect; {advice}"
            for key, advice in _LATER_SETTINGS.items()
            if key in settings
        ),
    )


def _is_variable(text: object) -> bool:
    """Return whether the environment of a process can contain a text."""
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _kernel_lists(check: _Check, raw: Any) -> dict[str, tuple[KernelEntry, ...]]:
    if isinstance(raw, Mapping):
        by_runtime = check.mapping("KERNELS", raw)
        return {
            runtime: _kernel_list(check, f"KERNELS[{runtime!r}]", value)
            for runtime, value in by_runtime.items()
        }
    return {"": _kernel_list(check, "KERNELS", raw)}


def _kernel_list(check: _Check, where: str, raw: Any) -> tuple[KernelEntry, ...]:
    entries = check.sequence(where, raw)
    parsed = tuple(_kernel(check, f"{where}[{i}]", entry) for i, entry in enumerate(entries))
    _refuse_duplicates(check, where, parsed)
    return parsed


def _kernel(check: _Check, where: str, raw: Any) -> KernelEntry:
    entry = check.mapping(where, raw, _KERNEL_KEYS)
    given = check.needed(where, entry, "func_id", "a number from 0")
    func_id = integer(given, 0, _LARGEST_FUNC_ID)
    if func_id is None:
        expected = f"an int from 0 to {_LARGEST_FUNC_ID}, the largest func_id of a runtime"
        raise check.wrong(f"{where}['func_id']", given, expected)
    core_type = check.needed(where, entry, "core_type", "'aic' or 'aiv'")
    if not isinstance(core_type, str) or core_type not in _CORE_TYPES:
        raise check.wrong(
            f"{where}['core_type']",
            core_type,
            "'aic' or 'aiv'",
            suggestion(core_type, _CORE_TYPES) if isinstance(core_type, str) else "",
        )
    source = check.source(where, entry)
    function = check.function(where, entry, source)
    name = entry.get("name", function or source.stem)
    if not isinstance(name, str) or not name:
        raise check.wrong(f"{where}['name']", name, "a text")
    signature = check.signature(where, entry)
    include_dirs = check.folders(where, entry)
    return KernelEntry(func_id, source, core_type, name, function, signature, include_dirs)


def _refuse_duplicates(check: _Check, where: str, kernels: tuple[KernelEntry, ...]) -> None:
    seen: dict[int, tuple[int, KernelEntry]] = {}
    for index, kernel in enumerate(kernels):
        first, other = seen.setdefault(kernel.func_id, (index, kernel))
        if other is not kernel:
            raise check.wrong(
                f"{where}[{index}]['func_id']",
                kernel.func_id,
                f"a unique func_id for {kernel.name!r}; {where}[{first}] ({other.name!r}) "
                "has the same",
            )


def _orchestrations(check: _Check, raw: Any) -> dict[str, OrchestrationEntry]:
    entry = check.mapping("ORCHESTRATION", raw)
    by_runtime = bool(entry) and all(isinstance(value, Mapping) for value in entry.values())
    if by_runtime:
        return {
            runtime: _orchestration(check, f"ORCHESTRATION[{runtime!r}]", value)
            for runtime, value in entry.items()
        }
    return {"": _orchestration(check, "ORCHESTRATION", entry)}


def _orchestration(check: _Check, where: str, raw: Any) -> OrchestrationEntry:
    entry = check.mapping(where, raw, _ORCHESTRATION_KEYS)
    source = check.source(where, entry)
    return OrchestrationEntry(
        source,
        check.function(where, entry, source),
        check.signature(where, entry),
        check.api(where, entry),
    )


class _Check:
    """Reads and checks the values of one file; its errors name the file, the key and the value."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def wrong(self, key: str, value: Any, expected: str, hint: str = "") -> UsageError:
        return UsageError(
            f"{self._path}: {key} is {shown(value)}; expected {expected}{hint}",
            name=key,
            value=value if isinstance(value, str | int | float | None) else shown(value),
            expected=expected,
        )

    def sequence(self, key: str, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise self.wrong(key, value, "a list of dicts")
        return list(value)

    def mapping(self, key: str, value: Any, known: tuple[str, ...] = ()) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise self.wrong(key, value, f"a dict with {', '.join(known) or 'texts as keys'}")
        for name in value:
            if known and name not in known:
                raise UsageError(
                    f"{self._path}: {key} has an unknown key {name!r}"
                    f"{suggestion(name, known) or '; known keys: ' + ', '.join(known)}",
                    name=name,
                    expected=", ".join(known),
                )
        return value

    def needed(self, where: str, entry: Mapping[str, Any], key: str, expected: str) -> Any:
        if key not in entry:
            raise UsageError(
                f"{self._path}: {where} has no {key!r}; expected {expected}",
                name=key,
                expected=expected,
            )
        return entry[key]

    def source(self, where: str, entry: Mapping[str, Any]) -> Path:
        source = self.needed(where, entry, "source", "the path of a source file")
        if not isinstance(source, str | Path):
            raise self.wrong(f"{where}['source']", source, "the path of a source file")
        path = Path(self._path.parent, source)
        if not path.is_file():
            there = path.parent if path.parent.is_dir() else self._path.parent
            names = [other.name for other in there.iterdir()]
            hint = suggestion(path.name, names)
            raise self.wrong(f"{where}['source']", str(source), "a file that exists", hint)
        return path

    def folders(self, where: str, entry: Mapping[str, Any]) -> tuple[Path, ...]:
        given = entry.get("extra_include_dirs", ())
        is_list = isinstance(given, list | tuple)
        if not is_list or not all(isinstance(one, str | Path) for one in given):
            raise self.wrong(f"{where}['extra_include_dirs']", given, "a list of folders")
        return tuple(self._path.parent / one for one in given)

    def signature(self, where: str, entry: Mapping[str, Any]) -> tuple[Parameter, ...] | None:
        given = entry.get("signature")
        try:
            return None if given is None else parse_signature(given)
        except UsageError as error:
            raise UsageError(
                f"{self._path}: {where}['signature']: {error}",
                name=f"{where}['signature']",
                value=shown(given),
            ) from None

    def api(self, where: str, entry: Mapping[str, Any]) -> str | None:
        api = entry.get("api")
        if api is not None and not isinstance(api, str):
            raise self.wrong(f"{where}['api']", api, "a text such as '2026-08'")
        return api

    def function(self, where: str, entry: Mapping[str, Any], source: Path) -> str | None:
        function = entry.get("function_name")
        if function is None and source.suffix == ".py":
            raise self.wrong(f"{where}['function_name']", None, f"a function in {source.name}")
        if function is not None and not (isinstance(function, str) and function.isidentifier()):
            raise self.wrong(f"{where}['function_name']", function, "the name of a function")
        return function
