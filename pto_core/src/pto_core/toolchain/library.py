"""Find the first version of g++ that has a part of the C++ library."""

from __future__ import annotations

import re

# For each header, the first version of g++ that has it.
_HEADERS = {
    "barrier": 11, "bit": 9, "charconv": 8, "compare": 10, "concepts": 10, "coroutine": 10,
    "expected": 12, "flat_map": 15, "flat_set": 15, "format": 13, "generator": 14,
    "latch": 11, "mdspan": 16, "numbers": 10, "print": 14, "ranges": 10, "semaphore": 11,
    "source_location": 11, "span": 10, "spanstream": 12, "stacktrace": 14, "stdfloat": 13,
    "stop_token": 10, "syncstream": 11, "text_encoding": 14, "version": 9,
}  # fmt: skip

# For each name, the first version of g++ whose headers define it; the headers are older.
_NAMES = {
    "bfloat16_t": 13, "float16_t": 13, "float32_t": 13, "float64_t": 13, "float128_t": 13,
    "byteswap": 12, "chunk": 13, "enumerate": 13, "expected": 12, "format": 13, "forward_like": 14,
    "generator": 14, "mdspan": 16, "move_only_function": 12, "print": 14, "println": 14,
    "slide": 13, "stride": 13, "to": 14, "to_underlying": 11, "unexpected": 12, "unreachable": 12,
    "zip": 13, "zip_transform": 13,
}  # fmt: skip

_MISSING_HEADER = re.compile(
    r"fatal error: (?:(?P<gcc>[\w/.+-]+): No such file or directory"
    r"|'(?P<clang>[^']+)' file not found)"
)
_MISSING_NAME = re.compile(
    r"error: (?:'(?P<gcc>\w+)' is not a member of 'std(?:::ranges|::views|::ranges::views)?'"
    r"|no (?:\w+ )+?(?:named )?'(?P<clang>\w+)' in namespace 'std)"
)


def missing_part(output: str) -> tuple[str, int] | None:
    """Return the missing header or name of the C++ library, and the first g++ that has it."""
    header = _MISSING_HEADER.search(output)
    if header:
        name = header["gcc"] or header["clang"]
        return (f"<{name}>", _HEADERS[name]) if name in _HEADERS else None
    found = _MISSING_NAME.search(output)
    if found:
        name = found["gcc"] or found["clang"]
        return (f"std::{name}", _NAMES[name]) if name in _NAMES else None
    return None


def missing_header(output: str) -> str | None:
    """Return the header that the compiler did not find, or None."""
    found = _MISSING_HEADER.search(output)
    return (found["gcc"] or found["clang"]) if found else None
