"""The native ABI, read from the headers ``pto/abi/*.h`` of the installed core, for ctypes.

Checks use it to call the function tables directly, in any order. The names are those of the headers
without the prefix: ``pto_run_report`` is ``RunReport``, ``PTO_MAX_CORES`` is ``MAX_CORES``, and the
enumerations below have their values. The member ``yield`` is ``yield_``.
"""

from __future__ import annotations

import ctypes
import keyword
import re
from enum import IntEnum, IntFlag
from functools import cache
from typing import Any, cast

import cffi

from pto_core.interfaces import abi_include_dir

ALIGNMENT = 1024  # of device addresses, in bytes
PAGE = 4096  # of the memory of connections, in bytes

HEADERS = ("pto/abi/backend.h", "pto/abi/dtype.h", "pto/abi/endpoint.h")
_INCLUDE = re.compile(r'#include "(pto/abi/\w+\.h)"\n')
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# What declares neither a type nor a number: other directives, assertions, functions.
_REST = re.compile(
    r"^#(?!define \w+ -?\w+ *$).*?$|^PTO_ABI_ASSERT\(.*?\);$"
    r"|^(?:static inline|__attribute__).*?^}$",
    re.DOTALL | re.MULTILINE,
)
# The prefixes of the constants of each enumeration. PTO_CORE_TYPES counts the values.
_ENUMERATIONS = {
    "Status": (IntEnum, ("PTO_ERROR_", "PTO_(?=OK|PENDING)")),
    "Step": (IntEnum, ("PTO_STEP_",)),  # the results of schedule_step()
    "Core": (IntEnum, ("PTO_CORE_(?!TYPES)",)),
    "BackendFlag": (IntFlag, ("PTO_BACKEND_",)),  # pto_backend_api.capabilities
    "RuntimeFlag": (IntFlag, ("PTO_RUNTIME_",)),  # pto_runtime_api.capabilities
    "TransportFlag": (IntFlag, ("PTO_TRANSPORT_",)),
    "Tag": (IntEnum, ("PTO_TAG_",)),  # the access of a task to a tensor
}
_PRIMITIVES = {
    "char": ctypes.c_char,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    **{f"{u}int{n}_t": getattr(ctypes, f"c_{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)},
}


def _text(header: str, seen: set[str]) -> str:
    """Return a header after the headers that it includes, without those in ``seen``."""
    if header in seen:
        return ""
    seen.add(header)
    text = (abi_include_dir() / header).read_text()
    included = "".join(_text(name, seen) for name in _INCLUDE.findall(text))
    return included + text


@cache
def _headers() -> cffi.FFI:
    seen: set[str] = set()
    text = "".join(_text(header, seen) for header in HEADERS)
    ffi = cffi.FFI()
    ffi.cdef(_REST.sub("", _COMMENT.sub("", text)))
    return ffi


@cache
def constants() -> dict[str, int]:
    """Return each number of the headers by its name there."""
    library = _headers().dlopen(None)
    return {name: getattr(library, name) for name in dir(library) if name.startswith("PTO_")}


def _enumeration(name: str) -> Any:
    kind, prefixes = _ENUMERATIONS[name]
    prefix = re.compile("|".join(prefixes))
    by_value = sorted(constants().items(), key=lambda constant: constant[1])
    values = {c[found.end() :]: value for c, value in by_value if (found := prefix.match(c))}
    return cast(Any, kind)(name, values)


_without_members: list[Any] = []


@cache
def _record(layout: Any) -> type[Any]:
    """Return the class of a structure or union; :func:`_with_members` adds its members."""
    _without_members.append(layout)
    base = ctypes.Union if layout.kind == "union" else ctypes.Structure
    words = layout.cname.split()[-1].removeprefix("pto_").split("_")
    name = "".join(word.capitalize() for word in words)
    return type(name, (base,), {"__doc__": f"``{layout.cname}``.", "__module__": __name__})


@cache
def _with_members(layout: Any) -> type[Any]:
    record = _record(layout)
    record._fields_ = [
        (f"{name}_" if keyword.iskeyword(name) else name, _of(member.type))
        for name, member in layout.fields
    ]
    return record


def _of(c_type: Any) -> Any:
    """Return the ctypes type of a type of the headers."""
    match c_type.kind:
        case "void":
            return None
        case "primitive":
            return _PRIMITIVES[c_type.cname]
        case "array":
            return _of(c_type.item) * c_type.length
        case "struct" | "union":
            return None if c_type.fields is None else _with_members(c_type)
        case "function":
            return ctypes.CFUNCTYPE(_of(c_type.result), *map(_of, c_type.args))
    target = c_type.item  # of a pointer
    if target.kind == "function":
        return _of(target)
    if target.cname in ("void", "uint8_t"):
        return ctypes.c_void_p
    if target.cname == "char":
        return ctypes.c_char_p
    if target.kind != "struct":
        return ctypes.POINTER(_of(target))
    is_opaque = target.fields is None
    return ctypes.c_void_p if is_opaque else ctypes.POINTER(_record(target))


@cache
def type_names() -> frozenset[str]:
    """Return the names of all types of the headers."""
    return frozenset(_headers().list_types()[0])


def type_of(c_name: str) -> Any:
    """Return the ctypes type of a type of the headers; None for one without members."""
    found = _of(_headers().typeof(c_name))
    while _without_members:  # the targets of pointers
        _with_members(_without_members.pop())
    return found


def __getattr__(name: str) -> Any:
    constant = f"PTO_{name}"
    c_name = "pto" + re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
    if name in _ENUMERATIONS:
        value: Any = _enumeration(name)
    elif constant in constants():
        value = constants()[constant]
    elif c_name in type_names():
        value = type_of(c_name)
    else:
        raise AttributeError(f"the headers of the ABI have no {name}")
    globals()[name] = value
    return value


def cores_of(mask: Any) -> list[int]:
    """Return the cores whose bits a ``CoreMask`` has set, in ascending order."""
    bits = mask.words[0] | mask.words[1] << 64
    return [core for core in range(128) if bits >> core & 1]


def bytes_at(address: int | None, size: int) -> bytes:
    """Copy the bytes at ``address``."""
    return ctypes.string_at(address, size) if address and size else b""
