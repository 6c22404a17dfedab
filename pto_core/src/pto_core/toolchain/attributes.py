"""Remove the vendor's core attributes, which host compilers do not know.

Published sources mark device functions ``[aicore]``, ``[[aicore]]`` or ``__attribute__((aicore))``,
at any place among the specifiers of a declaration. The last form only causes a warning on the host.
The first form is not C++, and compilers refuse the second form after ``static`` or ``inline``. A
macro cannot distinguish the forms, so both bracket forms are removed from the preprocessed text.
The line markers in that text ensure that diagnostics have the line numbers of the user's files.
"""

from __future__ import annotations

import re

# After an attribute, the rest of a declaration follows: a name, `~` or another attribute. This
# distinguishes an attribute from an index (`table[aicore];`) and from the capture of a lambda
# (`[aicore] {`, `[aicore](int)`).
_REST = r"(?=\s*(?:[A-Za-z_~:]|\[))"
_DOUBLE = re.compile(r"\[\s*\[\s*aicore\s*\]\s*\]")
_SINGLE = re.compile(r"(?<!\[)\[\s*aicore\s*\](?!\s*\])" + _REST)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def uses_attribute(source: str) -> bool:
    """Return whether the text has ``[aicore]`` outside of macro definitions."""
    return _SINGLE.search(_DEFINITION.sub("", source)) is not None


def without_attributes(preprocessed: str) -> str:
    """Replace both bracket forms by spaces, so that lines and columns stay the same."""
    text = _DOUBLE.sub(_blank, preprocessed)
    return _SINGLE.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())
