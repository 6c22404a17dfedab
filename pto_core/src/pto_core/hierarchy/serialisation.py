"""Functions as bytes, for children of the same interpreter.

What a child can import travels by name. Any other function travels with its code, default values,
closure and the global names that its code uses; its bytes do not depend on what ran before.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

# Without references, so that equal code has equal bytes.
_MARSHAL_VERSION = 2
_ABSENT = "absent"


def serialised(value: Any) -> bytes:
    """Give the bytes of ``value``; raises what pickle raises where a part cannot be taken along."""
    written = io.BytesIO()
    _Pickler(written, protocol=5).dump(value)
    return written.getvalue()


def deserialised(content: bytes) -> Any:
    """Make the value again."""
    return pickle.loads(content)


def import_path(value: Any) -> str | None:
    """Give ``module:qualname`` if an import finds this very object there, else None."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    try:
        found = _attribute(sys.modules[module], name)
    except AttributeError:
        return None
    return f"{module}:{name}" if found is value else None


def imported(path: str) -> Any:
    """Give the object at ``module:qualname``; raises ImportError or AttributeError."""
    module, _, name = path.partition(":")
    loaded = sys.modules["__main__"] if module == "__main__" else importlib.import_module(module)
    return _attribute(loaded, name)


def _attribute(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name)
    return found


class _Pickler(pickle.Pickler):
    """Takes functions by code where an import would not find them, or only in ``__main__``."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return importlib.import_module, (value.__name__,)
        if isinstance(value, FunctionType) and not _is_importable(value):
            return _parts(value)
        return NotImplemented


def _is_importable(function: FunctionType) -> bool:
    return function.__module__ != "__main__" and import_path(function) is not None


def _parts(function: FunctionType) -> tuple[Any, ...]:
    """The state comes after the function itself, so that a function may refer to itself."""
    code = function.__code__
    made = (
        marshal.dumps(code, _MARSHAL_VERSION),
        function.__module__,
        len(function.__closure__ or ()),
    )
    names = sorted(set(_global_names(code)))
    state = (
        {name: function.__globals__[name] for name in names if name in function.__globals__},
        function.__name__,
        function.__qualname__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__doc__,
        function.__dict__ or None,
        [_content(cell) for cell in function.__closure__ or ()],
    )
    return _make, made, state, None, None, _fill


def _global_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _content(cell: CellType) -> tuple[str, Any]:
    try:
        return "", cell.cell_contents
    except ValueError:  # a name of an enclosing function that has no value yet
        return _ABSENT, None


def _make(code: bytes, module: str, cells: int) -> FunctionType:
    namespace = {"__name__": module, "__builtins__": __builtins__}
    closure = tuple(CellType() for _ in range(cells))
    return FunctionType(marshal.loads(code), namespace, closure=closure or None)


def _fill(function: Callable[..., Any], state: tuple[Any, ...]) -> None:
    assert isinstance(function, FunctionType)
    names, name, qualname, defaults, keyword_defaults, doc, attributes, cells = state
    function.__globals__.update(names)
    function.__name__, function.__qualname__ = name, qualname
    function.__defaults__, function.__kwdefaults__ = defaults, keyword_defaults
    function.__doc__ = doc
    function.__dict__.update(attributes or {})
    for cell, (kind, value) in zip(function.__closure__ or (), cells, strict=True):
        if kind != _ABSENT:
            cell.cell_contents = value
