"""The vendor's core attributes, which host compilers do not know.

Published sources mark device functions ``[aicore]``, ``[[aicore]]`` or ``__attribute__((aicore))``,
anywhere among the specifiers of a declaration. The last form is only a warning on the host. The
first is not C++ and the second is refused after ``static`` or ``inline``; no macro can tell the
three apart, so both are taken out of the preprocessed text, where line markers keep diagnostics on
the user's lines.
"""

from __future__ import annotations

import re

# An attribute is followed by the rest of a declaration: a name, `~` or another attribute. An index
# (`table[aicore];`) or a lambda's capture (`[aicore] {`, `[aicore](int)`) is not.
_REST = r"(?=\s*(?:[A-Za-z_~:]|\[))"
_DOUBLE = re.compile(r"\[\s*\[\s*aicore\s*\]\s*\]")
_SINGLE = re.compile(r"(?<!\[)\[\s*aicore\s*\](?!\s*\])" + _REST)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def uses_attribute(source: str) -> bool:
    """Whether the text has ``[aicore]`` outside a macro definition, which may never be used."""
    return _SINGLE.search(_DEFINITION.sub("", source)) is not None


def without_attributes(preprocessed: str) -> str:
    """Blank out both bracket forms, keeping every line and column where it was."""
    text = _DOUBLE.sub(_blank, preprocessed)
    return _SINGLE.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())
