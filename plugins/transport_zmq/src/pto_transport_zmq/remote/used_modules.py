"""The modules that the functions of a program use, compared between two hosts.

A function reaches the other host by its import path or by its code, but the other host always
imports the modules that the function uses. So the start of a session compares these modules:

- *Libraries*, which are modules of installed distributions: their versions must have the same first
  number. Versions that begin with 0 must also have the same second number.
- *Modules of the program*, which are all other modules with a file: the files must be equal.

A function uses the modules that its code refers to or imports. The functions of its own module that
it calls count as its code. A module of the program uses the modules of its global names. The
standard library and ``pto_core`` are not compared here.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pto_core.errors import UsageError
from pto_core.hierarchy.tasks import Task
from pto_core.kernels import ChipCallable
from pto_core.kernels.callables import file_digest
from pto_transport_zmq.remote.callables import Digest
from pto_transport_zmq.remote.values import Name, Record, Text

USED_MAX = 2**14
_IGNORED = frozenset(("__main__", "__mp_main__", "builtins", "pto_core")) | sys.stdlib_module_names
_LIBRARIES = tuple(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
_FOLDERS = {"site-packages", "dist-packages"}
_RELEASE = re.compile(r"(\d+)(?:\.(\d+))?")


class UsedModule(Record, frozen=True):
    """A library with its version, or a module of the program with the digest of its file.

    ``version``: empty if no installed distribution has the module. ``user``: the function or the
    module that uses it.
    """

    name: Name
    user: Text
    version: Text | None = None
    digest: Digest | None = None


# ---- at the parent's host ----


def used_modules(targets: Iterable[object], shipped: Collection[str]) -> list[UsedModule]:
    """Return the modules that callables use. ``shipped``: the top-level modules that are sent."""
    users: dict[str, str] = {}
    pending = [(name, _title(one)) for one in targets for name in _modules_of_target(one)]
    found: dict[str, UsedModule] = {}
    while pending:
        name, user = pending.pop()
        top = name.partition(".")[0]
        if top in _IGNORED or name in users:
            continue
        users[name] = user
        file = _file(name)
        if file is None:
            continue
        if _is_library(file):
            found.setdefault(top, UsedModule(top, user, version=_version(top)))
            continue
        if top not in shipped:
            found[name] = UsedModule(name, user, digest=file_digest(Path(file)))
        values = vars(sys.modules[name]) if name in sys.modules else {}
        above = name.rpartition(".")[0]
        pending += [(one, name) for one in (*_modules_of_values(values), above) if one]
    return [found[name] for name in sorted(found)]


def _modules_of_target(target: object) -> set[str]:
    """Return the names of the modules that the functions of a callable use."""
    found: set[str] = set()
    pending = list(_functions(target))
    seen: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        values = dict(_values_used(function))
        own = function.__module__
        found |= (_modules_of_values(values) | set(_imports(function.__code__))) - {own}
        for value in values.values():
            if getattr(value, "__module__", None) != own:
                continue
            pending += _functions(value)
            if isinstance(value, type):
                found |= {base.__module__ for base in value.__mro__} - {own}
    return found


def _functions(target: Any) -> Iterator[FunctionType]:
    """Yield the Python functions of a callable, or of a class."""
    if isinstance(target, ChipCallable):
        for one in (target.function, *(part.function for part in target.children.values())):
            yield from _functions(one)
    elif isinstance(target, Task):
        yield from _functions(target.function)
    elif isinstance(target, functools.partial):
        yield from _functions(target.func)
    elif isinstance(target, MethodType | staticmethod | classmethod):
        yield from _functions(target.__func__)
    elif isinstance(target, type):
        yield from (one for one in vars(target).values() if isinstance(one, FunctionType))
    elif isinstance(target, FunctionType):
        yield target
    elif callable(target):  # an object with __call__
        yield from _functions(type(target))


def _values_used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the global names, closure variables and defaults of a function, with their values."""
    for code in _codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the closure variable has no value yet
            yield f"closure {name}", cell.cell_contents
    for index, value in enumerate(function.__defaults__ or ()):
        yield f"default {index}", value


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imports(code: CodeType) -> Iterator[str]:
    """Yield the names in the absolute import statements of a function."""
    for one in _codes(code):
        steps = list(dis.get_instructions(one))
        for level, step in zip(steps, steps[2:], strict=False):
            if step.opname == "IMPORT_NAME" and level.argval == 0:
                yield step.argval


def _modules_of_values(values: dict[str, Any]) -> set[str]:
    """Return the modules among values, and the modules in which values are defined."""
    names = (
        value.__name__ if isinstance(value, ModuleType) else _module_of(value)
        for value in values.values()
    )
    return {name for name in names if isinstance(name, str)}


def _module_of(value: object) -> object:
    has_name = isinstance(value, type | FunctionType | BuiltinFunctionType)
    return value.__module__ if has_name else type(value).__module__


def _title(target: object) -> str:
    return str(getattr(target, "__qualname__", None) or getattr(target, "name", target))


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or not _FOLDERS.isdisjoint(Path(file).parts)


# ---- at the remote host ----


def check_used(modules: Iterable[UsedModule]) -> None:
    """Compare modules with those of this host, without an import. Raises UsageError."""
    problems = [problem for one in modules if (problem := _problem(one))]
    if problems:
        raise UsageError("; ".join(problems), name="modules")


def _problem(module: UsedModule) -> str:
    """Describe how a module differs on this host; return an empty text if it does not."""
    spec = _spec(module.name)
    if module.digest is None:
        return _library_problem(module, is_installed=spec is not None)
    advice = f"send it with ship=[{module.name.partition('.')[0]!r}], or install it there"
    if spec is None or spec.origin is None or not spec.has_location:
        return f"{module.user} uses the module {module.name}, which the other host lacks; {advice}"
    if file_digest(Path(spec.origin)) == module.digest:
        return ""
    return (
        f"{module.user} uses the module {module.name}, which has other content on the other host; "
        f"{advice}"
    )


def _library_problem(module: UsedModule, *, is_installed: bool) -> str:
    name, version = module.name, module.version
    if not is_installed:
        known = f", version {version} on the parent's host" if version else ""
        return (
            f"{module.user} uses the module {name}{known}, which the other host lacks; install it "
            "there"
        )
    here = _version(name)
    if not version or not here or _leading(version) == _leading(here):
        return ""
    return (
        f"{module.user} uses the module {name}: version {version} on the parent's host, {here} on "
        "the other host; install the same version on both"
    )


def _leading(version: str) -> tuple[str, ...]:
    """Return the numbers of a version that must be equal on both hosts."""
    match = _RELEASE.match(version)
    if match is None:
        return (version,)
    major, minor = match.groups()
    return (major, minor or "0") if major == "0" else (major,)


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing the packages above it."""
    search, spec = None, None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        full = ".".join(parts[:count])
        found = (finder.find_spec(full, search, None) for finder in sys.meta_path)
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
        search = spec.submodule_search_locations
    return spec


def _file(name: str) -> str | None:
    """Return the file of a module, which may not be imported yet."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__file__", None)
    spec = _spec(name)
    return spec.origin if spec is not None and spec.has_location else None


def _version(top: str) -> str:
    """Return the version of the distribution with a top-level module; empty if there is none."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(top)
    names = _distributions().get(top, ())
    return metadata.version(names[0]) if names else ""


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the distributions of each top-level module; cached, because it reads all metadata."""
    return metadata.packages_distributions()
