"""Serialise functions for other processes: by import path, or by code.

cloudpickle serialises the code. The result contains the functions of the same module that the code
uses, and refers to other functions by import path. Functions of the program's main module have a
usable import path in forked children only.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib
import inspect
import io
import itertools
import os
import pickle
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias, cast
from weakref import ref

from pto_core._worker import SharedBlock
from pto_core.errors import RightsError, UsageError
from pto_core.kernels.callables import code_digest, digest_of

_MAIN = "__main__"
_MP_MAIN = "__mp_main__"  # the name of the main module in children of the package multiprocessing
_LIBRARIES = tuple(
    sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PLAIN = (int, float, complex, str, bytes, type(None))
_FIXED = (*_PLAIN, ModuleType, BuiltinFunctionType)  # types whose objects refer to nothing
_COMPARED_BYTES = 1 << 14
"""The maximum size of the pickle of an object that :class:`References` compares by content."""
_FOLLOWED_ELEMENTS = 1000
"""The maximum number of elements of containers that :class:`References` follows for a function."""
_registering = threading.Lock()


IsKnown: TypeAlias = Callable[[type | FunctionType], bool]
"""Whether the receiver has a function or class of the main module by its name."""


def serialised(value: Any, is_known: IsKnown | None = None) -> bytes:
    """Return ``value`` serialised by code, except classes that the receiver has by their name.

    The functions that ``value`` uses are always serialised, because they share global variables
    with it. Raises the errors of pickle, and UsageError for a shared array, which would become a
    copy.
    """

    def is_known_class(thing: type | FunctionType) -> bool:
        return is_known is not None and isinstance(thing, type) and is_known(thing)

    content = io.BytesIO()
    with _by_value(_module_by_value(value)):
        _pickler(content, is_known_class).dump(value)
    return content.getvalue()


def _cached(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    """Return a function with an empty cache."""
    return functools.lru_cache(**parameters)(function)


@functools.cache
def pickler_by_code() -> type[Any]:
    """Return the class that pickles functions and classes by code if the receiver lacks them."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: io.BytesIO, is_known: IsKnown, **options: Any) -> None:
            super().__init__(file, 5, **options)
            self._is_known = is_known

        def reducer_override(self, thing: object) -> Any:
            is_code = isinstance(thing, type | FunctionType) and thing.__module__ == _MAIN
            if is_code and self._is_known(cast("type | FunctionType", thing)):
                return NotImplemented
            if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__ == _MAIN:
                return _cached, (thing.cache_parameters(), thing.__wrapped__)
            reduced = super().reducer_override(thing)
            bases = thing.__bases__ if isinstance(thing, type) else ()
            if reduced is not NotImplemented and any(base.__module__ == _MAIN for base in bases):
                # The receiver may have this class with its inherited base, which has changed since.
                reduced[2][0]["__bases__"] = bases
            return reduced

        def _dynamic_function_reduce(self, func: FunctionType) -> Any:
            """Add the global variables that only the body of a class inside the function reads."""
            made, arguments, state, *setter = super()._dynamic_function_reduce(func)
            for name in loaded_globals(func.__code__):
                if name in func.__globals__:
                    state[1]["__globals__"].setdefault(name, func.__globals__[name])
            return made, arguments, state, *setter

    return Pickler


def _pickler(file: io.BytesIO, is_known: IsKnown) -> pickle.Pickler:
    """Return a pickler that refuses shared arrays."""
    import numpy as np

    class Pickler(pickler_by_code()):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, np.ndarray) and _is_shared(value):
                raise UsageError(
                    f"it uses a shared array of shape {value.shape} directly, and the child would "
                    "get a copy; pass the array as an argument of the task",
                    name="target",
                )
            return super().reducer_override(value)

    return cast(pickle.Pickler, Pickler(file, is_known))


def _is_shared(array: Any) -> bool:
    """Return whether an array is a view of an array of ``Worker.shared_array``."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return isinstance(array, SharedBlock)


def deserialised(content: bytes) -> Any:
    """Return the value that :func:`serialised` serialised in the parent."""
    import cloudpickle

    return cloudpickle.loads(content)


def import_path(value: Any) -> str | None:
    """Return ``module:qualname`` if an import of it finds this object, otherwise None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    try:
        *_, found = _attributes(sys.modules[module], name)
    except AttributeError:
        return None
    return f"{_MAIN if module == _MP_MAIN else module}:{name}" if found is value else None


def is_of_main(path: str | None) -> bool:
    """Return whether an import path names the program's main module."""
    return path is not None and path.partition(":")[0] == _MAIN


def checked_path(path: object) -> str:
    """Return an absolute import path; raise UsageError for any other value."""
    module, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if all(module.split(".")) and all(part.isidentifier() for part in name.split(".")):
        return str(path)
    raise UsageError(
        f"{path!r} is not an absolute import path; write it as 'package.module:function'",
        name="target",
        value=path,
    )


def imported(path: str, permitted: Sequence[str] | None = None) -> Any:
    """Return the object at ``module:qualname``. Raises the errors of the import.

    ``permitted``: the modules that may define the object; None means every module. Raises
    RightsError for an object of another module, and for a module as a part of ``qualname``.
    """
    module, _, name = path.partition(":")
    loaded = sys.modules[module] if module == _MAIN else importlib.import_module(module)
    found = None
    for found in _attributes(loaded, name):
        if permitted is not None and isinstance(found, ModuleType):
            raise RightsError(
                f"{path} leads through an attribute that is the module {found.__name__}, which "
                "this host does not permit to its client; write the module that defines the "
                "function before the colon",
                name="imports",
            )
    definer = getattr(found, "__module__", None)
    if permitted is not None and not is_in_modules(definer, permitted):
        raise RightsError(
            f"the object at {path} has the module {definer!r}, which this host does not permit to "
            "its client; name a function that a permitted module defines, or add the module to "
            "imports there",
            name="imports",
        )
    return found


def is_in_modules(module: object, names: Iterable[str]) -> bool:
    """Return whether a module is one of ``names`` or a submodule of one."""
    return isinstance(module, str) and any(f"{module}.".startswith(f"{one}.") for one in names)


class NotImportableError(UsageError):
    """A child cannot import the parent's version of a function, but it can receive the code."""


def imported_version(path: str, expected: bytes, permitted: Sequence[str] | None = None) -> Any:
    """Return the object at an import path, if its code has the fingerprint ``expected``.

    ``permitted``: as in :func:`imported`. Raises NotImportableError and RightsError.
    """
    try:
        found = imported(path, permitted)
    except RightsError:
        raise
    except Exception as error:
        raise NotImportableError(
            f"{path} cannot be imported here: {type(error).__name__}: {error}", name=path
        ) from error
    if fingerprint(found) != expected:
        raise NotImportableError(
            f"the code of {path} differs here from the code in the parent", name=path
        )
    return found


def fingerprint(target: Any) -> bytes:
    """Return a hash of the code of ``target`` and of the code in its module that it uses.

    The hash is equal in all processes with the same source and Python version.
    """
    module = getattr(target, "__module__", None)
    parts: list[str | bytes] = []
    seen: set[int] = set()
    pending = [target]
    while pending:
        value = pending.pop()
        if isinstance(value, _PLAIN):
            parts.append(repr(value))
        elif id(value) not in seen:
            seen.add(id(value))
            parts.append(_own_part(value))
            pending.extend(_used(value, module))
    return digest_of(*parts)


class References:
    """The objects to which the code of a function refers, to detect a change.

    They are the values of the global and closure variables of the function and of all functions
    that travel by code with it, their code and defaults, and the attributes of classes that travel
    by code, with those of their base classes.
    A variable is compared by the identity of its value. A value that can change in place, such as a
    list, is also compared by its pickle if that has at most ``_COMPARED_BYTES`` bytes. A change in
    place is not detected in a larger value or in one that cannot be pickled. The elements of a
    container are not pickled again, but functions and classes among the first
    ``_FOLLOWED_ELEMENTS`` of them are compared.

    Only values that have no weak references, such as lists, are kept alive.
    """

    def __init__(self, target: Any) -> None:
        self._variables: list[tuple[Callable[[Any, Any], Any], Any, Any]] = []
        self._weak: list[tuple[Callable[[Any, Any], Any], Any, ref[Any]]] = []
        self._contents: list[tuple[Any, bytes]] = []
        self._names: list[tuple[Callable[[Any], Any], Any, Any]] = []
        self._is_complete = True  # whether the objects below were all read
        modules = {_module_by_value(target), _MAIN, _MP_MAIN}
        self._left = _FOLLOWED_ELEMENTS
        seen: set[tuple[int, bool]] = set()
        pending = [(target, False)]
        while pending:
            value, is_element = pending.pop()
            if (id(value), is_element) in seen:
                continue
            seen.add((id(value), is_element))
            try:
                if isinstance(value, list | dict | set | frozenset | tuple):
                    pending += self._elements(value, is_element=is_element)
                    value = type(value)
                found = self._referred(value, modules, is_element=is_element)
                # the pickle of a function or class, its name, does not contain what it refers to
                is_inside = is_element and not isinstance(value, FunctionType | type)
                pending += ((one, is_inside) for one in found)
            except Exception:  # noqa: BLE001 - methods of the object raise any error
                self._is_complete = False

    def have_changed(self) -> bool:
        """Return whether a variable has another value, or a value has another content.

        True if this is unknown, because an object raised an error.
        """
        for read, key, value in self._variables:
            if read(key, _Missing) is not value:
                return True
        for read, key, known in self._weak:
            value = read(key, None)
            if value is None or value is not known():
                return True
        for names_of, key, names in self._names:
            if names_of(key) != names:
                return True
        for value, content in self._contents:
            try:
                if pickle.dumps(value, 5) != content:
                    return True
            except Exception:  # noqa: BLE001 - methods of the object raise any error
                return True
        return not self._is_complete

    def _elements(self, value: Any, *, is_element: bool) -> list[tuple[Any, bool]]:
        """Return the elements of a container, and whether they are compared with it."""
        is_compared = is_element or self._add_content(value) or not isinstance(value, tuple)
        elements = value.values() if isinstance(value, dict) else value
        found = [(one, is_compared) for one in itertools.islice(elements, self._left)]
        self._left -= len(found)
        return found

    def _add_content(self, value: Any) -> bool:
        """Compare an object by its pickle, if possible; return whether it is."""
        content = _small_pickle(value)
        if content is not None:
            self._contents.append((value, content))
        return content is not None

    def _referred(self, value: Any, modules: set[str | None], *, is_element: bool) -> Iterable[Any]:
        """Return the objects to which ``value`` refers. Add its variables or its content."""
        if isinstance(value, _FIXED):
            return ()
        if isinstance(value, FunctionType | type):
            if value.__module__ not in modules and import_path(value) is not None:
                return ()  # it travels by its import path
            if isinstance(value, type):
                names = self._read_names(_attribute_names, vars(value))
                read = [self._read(vars(value).get, name) for name in names]
                return [*read, *value.__bases__]
            own, known = ref(value), value.__globals__
            self._read(_code_of, own)
            defaults = self._read_names(_default_names, own)
            return [
                *(self._read(known.get, name) for name in set(loaded_globals(value.__code__))),
                *(self._read(_cell_content, (own, i)) for i in range(len(value.__closure__ or ()))),
                *(self._read(_default, (own, name)) for name in defaults),
            ]
        if (parts := _parts(value)) is not None:
            return parts
        if not is_element:
            self._add_content(value)
        return [type(value)]

    def _read_names(self, names_of: Callable[[Any], Any], key: Any) -> Any:
        self._names.append((names_of, key, names := names_of(key)))
        return names

    def _read(self, read: Callable[[Any, Any], Any], key: Any) -> Any:
        value = read(key, _Missing)
        try:
            known = ref(value)
        except TypeError:
            known = None
        if known is not None and value is not _Missing:
            self._weak.append((read, key, known))
        else:
            self._variables.append((read, key, value))
        return value


class _Missing:
    """The value of a variable that does not exist."""


# Readers of a function that the caller does not keep alive.


def _cell_content(place: tuple[ref[FunctionType], int], missing: Any) -> Any:
    cells = getattr(place[0](), "__closure__", None)
    return missing if cells is None else _content(cells[place[1]])


def _code_of(function: ref[FunctionType], missing: Any) -> Any:
    return getattr(function(), "__code__", missing)


def _default(place: tuple[ref[FunctionType], int | str], missing: Any) -> Any:
    return _defaults(place[0]()).get(place[1], missing)


def _default_names(function: ref[FunctionType]) -> Iterable[int | str]:
    found = _defaults(function())
    return set(found) if found else ()


def _defaults(function: FunctionType | None) -> dict[int | str, Any]:
    if function is None or not (function.__defaults__ or function.__kwdefaults__):
        return {}
    found: dict[int | str, Any] = dict(enumerate(function.__defaults__ or ()))
    return found | (function.__kwdefaults__ or {})


def _attribute_names(attributes: Iterable[str]) -> set[str]:
    """Return the names of the attributes of a class, without those that Python adds later."""
    return {*attributes} - {"__annotations__", "__annotations_cache__", "__slotnames__"}


def _small_pickle(value: Any) -> bytes | None:
    """Return the pickle of an object; None for a large or shared one, or if this fails."""
    import numpy as np

    if isinstance(value, np.ndarray) and _is_shared(value):
        return None
    try:
        file = _SmallFile()
        pickle.Pickler(file, 5, buffer_callback=file.has_room).dump(value)
        return file.getvalue()
    except Exception:  # noqa: BLE001 - methods of the object raise any error
        return None


class _SmallFile(io.BytesIO):
    """A file that raises OverflowError at ``_COMPARED_BYTES`` bytes, before a buffer is copied."""

    def write(self, part: Any) -> int:
        if self.tell() + len(part) > _COMPARED_BYTES:
            raise OverflowError
        return super().write(part)

    def has_room(self, buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes > _COMPARED_BYTES:
            raise OverflowError
        return True


@contextlib.contextmanager
def _by_value(module: str | None) -> Iterator[None]:
    """Make cloudpickle serialise the functions and classes of a module by code."""
    import cloudpickle
    from cloudpickle.cloudpickle import list_registry_pickle_by_value

    with _registering:
        loaded = sys.modules.get(module or "")
        is_known = loaded is not None and loaded.__name__ == module
        is_needed = is_known and module not in list_registry_pickle_by_value()
        if is_needed:
            cloudpickle.register_pickle_by_value(loaded)
        try:
            yield
        finally:
            if is_needed:
                cloudpickle.unregister_pickle_by_value(loaded)


def _module_by_value(value: Any) -> str | None:
    """Return the module whose functions and classes must be serialised with ``value``."""
    if import_path(value) is not None:
        return str(value.__module__)
    while isinstance(value, functools.partial | MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    module = _module_of(value)
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    is_of_python = module in sys.builtin_module_names or file.startswith(_LIBRARIES)
    return None if is_of_python else module


def _attributes(found: Any, path: str) -> Iterator[Any]:
    """Yield the value of each name in a path of attributes, up to the value of the whole path."""
    for name in path.split("."):
        found = getattr(found, name)
        yield found


def _own_part(value: Any) -> str | bytes:
    if isinstance(value, FunctionType):
        return code_digest(value.__code__)
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _used(value: Any, module: str | None) -> Iterable[Any]:
    """Return the objects that the code of ``value`` refers to, in a fixed order."""
    if isinstance(value, FunctionType):
        return [
            *(value.__defaults__ or ()),
            *_values(value.__kwdefaults__ or {}),
            *map(_content, value.__closure__ or ()),
            *_global_values(value, module),
        ]
    if isinstance(value, type):
        return _values(vars(value)) if value.__module__ == module else ()
    # of other objects, the methods of their type are used
    parts = _parts(value)
    return [type(value)] if parts is None else parts


def _parts(value: Any) -> Sequence[Any] | None:
    """Return the parts of a value that cannot be replaced in it; None for any other object."""
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, tuple):
        return value
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *_values(value.keywords)]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    # tasks and kernels wrap a function
    wrapped = inspect.getattr_static(value, "__wrapped__", None)
    is_function = isinstance(wrapped, FunctionType | MethodType | functools.partial)
    return [wrapped] if is_function else None


def _values(named: Any) -> list[Any]:
    """Return the values in the alphabetical order of their names."""
    return [named[name] for name in sorted(named)]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the closure variable has no value yet
        return None


def _global_values(function: Callable[..., Any], module: str | None) -> Iterator[Any]:
    found = function.__globals__
    if found.get("__name__") != module:
        return
    for name in sorted(set(_names(function.__code__)) & found.keys()):
        value = found[name]
        if isinstance(value, _PLAIN) or _module_of(value) == module:
            yield value


def _module_of(value: Any) -> Any:
    """Return the module of a function, class or object. Does not run code of the object."""
    if isinstance(value, FunctionType | type):
        return value.__module__
    return inspect.getattr_static(value, "__module__", None)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def loaded_globals(code: CodeType) -> Iterator[str]:
    """Yield the names of the global variables that code reads, also in code inside it.

    The body of a class reads them with other instructions, with which it also reads its own names.
    """
    found = [(one.opname, one.argval) for one in dis.get_instructions(code)]
    own = {name for operation, name in found if operation == "STORE_NAME"}
    for operation, name in found:
        is_in_class = operation in {"LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
        if operation == "LOAD_GLOBAL" or (is_in_class and name not in own):
            yield name
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from loaded_globals(constant)
