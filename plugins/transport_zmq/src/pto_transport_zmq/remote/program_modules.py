"""The modules of a program on two hosts: modules that are sent, and modules that are compared.

*Compared modules.* A function reaches the other host by its import path or by its code, but the
other host always imports the modules that the function uses. So the start of a session compares
these modules:

- *Libraries*, which are modules of installed distributions: their versions must have the same first
  number. Versions that begin with 0 must also have the same second number.
- *Modules of the program*, which are all other modules with a file: the files must be equal.

A function uses the modules that its code refers to or imports. The functions of its own module that
it calls count as its code. A module of the program uses the modules of its global names. The
standard library and ``pto_core`` are not compared here.

*Sent modules.* The parent's host reads the Python sources of the modules. The other host writes
them to a private folder, which the Worker's process puts first on ``sys.path`` before it imports
anything. The folder is removed when the session has ended.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Annotated, Any

import msgspec

from pto_core.errors import ProtocolError, UsageError
from pto_core.kernels import ChipCallable
from pto_core.kernels.callables import file_digest
from pto_core.worker.tasks import Task
from pto_transport_zmq.remote.callables import Digest, FileName, check_names
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


# ---- compared modules, at the parent's host ----


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


# ---- compared modules, at the remote host ----


def check_used(modules: Iterable[UsedModule]) -> None:
    """Compare modules with the modules of this host, without an import. Raises UsageError."""
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


FILES_MAX = 2**12
SOURCES_BYTES_MAX = 2**24
_SUFFIX = ".py"
_PREFIX = "pto-modules-"

ModuleSources = Annotated[
    dict[FileName, Annotated[bytes, msgspec.Meta(max_length=SOURCES_BYTES_MAX)]],
    msgspec.Meta(max_length=FILES_MAX),
]
"""The sources of modules by file name, such as ``my_pkg/__init__.py``."""


# ---- sent modules, at the sender ----


def module_sources(names: Iterable[str]) -> dict[str, bytes]:
    """Return the sources of top-level modules and packages, with all modules in the packages.

    Raises UsageError for a name that cannot be sent, and for more bytes or files than the limits.
    """
    files = {inner: file for name in names for inner, file in _files(name)}
    nbytes = sum(file.stat().st_size for file in files.values())
    if len(files) > FILES_MAX or nbytes > SOURCES_BYTES_MAX:
        raise UsageError(
            f"the modules in ship= have {len(files)} files with {nbytes} bytes; the limits are "
            f"{FILES_MAX} files and {SOURCES_BYTES_MAX} bytes; install the larger ones on the "
            "other host",
            name="ship",
        )
    return {inner: file.read_bytes() for inner, file in files.items()}


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the names and paths of a module's files."""
    is_a_module = name.isidentifier() and name != "__main__"
    spec = importlib.util.find_spec(name) if is_a_module else None
    if spec is None:
        raise UsageError(
            f"ship= has {name!r}, which is not a top-level module or package that can be imported "
            "here; functions of the main program are sent without ship=",
            name="ship",
            value=name,
        )
    if spec.submodule_search_locations is not None:
        for location in spec.submodule_search_locations:
            yield from _package_files(name, Path(location))
    elif spec.origin is not None and spec.origin.endswith(_SUFFIX):
        yield name + _SUFFIX, Path(spec.origin)
    else:
        raise _not_python(name, spec.origin)


def _package_files(name: str, root: Path) -> Iterator[tuple[str, Path]]:
    for folder, _, found in os.walk(root):
        for file in sorted(found):
            path = Path(folder, file)
            if file.endswith(tuple(EXTENSION_SUFFIXES)):
                raise _not_python(name, str(path))
            if file.endswith(_SUFFIX):
                yield str(Path(name) / path.relative_to(root)), path


def _not_python(name: str, file: str | None) -> UsageError:
    return UsageError(
        f"the module {name} cannot be sent to another host, because {file or 'it'} is not Python "
        "source; install the module there",
        name="ship",
        value=name,
    )


# ---- sent modules, at the receiver ----


def top_levels(sources: Iterable[str]) -> list[str]:
    """Return the sorted names of the top-level modules that these files belong to."""
    return sorted({name.partition("/")[0].removesuffix(_SUFFIX) for name in sources})


def modules_folder() -> str:
    """Return the path of a folder for the modules of one session; it does not exist yet.

    Its name is random: agents in other namespaces may use the same folder for temporary files, and
    the same process ids.
    """
    return os.path.join(tempfile.gettempdir(), _PREFIX + os.urandom(16).hex())


def write_modules(folder: str, sources: Mapping[str, bytes]) -> None:
    """Write modules to a new private folder.

    Raises ProtocolError for names that cannot be written there, and for more bytes than the limit,
    and OSError.
    """
    check_names(sources)
    nbytes = sum(map(len, sources.values()))
    if nbytes > SOURCES_BYTES_MAX:
        raise ProtocolError(
            f"the modules from another host have {nbytes} bytes; the limit is {SOURCES_BYTES_MAX}"
        )
    os.mkdir(folder, 0o700)
    for name, content in sources.items():
        file = Path(folder, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def remove_modules(folder: str) -> None:
    """Remove the folder of a session, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def use_modules(folder: str, names: Sequence[str]) -> None:
    """Make the modules in a folder importable, before all other modules of these names."""
    loaded = [name for name in names if name in sys.modules]
    if loaded:
        raise UsageError(
            f"the module {loaded[0]} in ship= is in use by the agent itself, so it cannot be "
            "replaced; remove it from ship=, and install the same version on both hosts",
            name="ship",
            value=loaded[0],
        )
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
