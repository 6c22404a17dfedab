"""Remove the vendor's core attributes, which host compilers do not know.

Published sources mark device functions ``[aicore]``, ``[[aicore]]`` or ``__attribute__((aicore))``,
at any place among the specifiers of a declaration. The last form causes only a warning on the host.
The first is not C++, and compilers refuse the second after ``static`` or ``inline``. No macro can
distinguish the three forms, so both bracket forms are removed from the preprocessed text. Line
markers there keep diagnostics on the user's lines.
"""

from __future__ import annotations

import re

# The rest of a declaration follows an attribute: a name, `~` or another attribute. It does not
# follow an index (`table[aicore];`) or the capture of a lambda (`[aicore] {`, `[aicore](int)`).
_REST = r"(?=\s*(?:[A-Za-z_~:]|\[))"
_DOUBLE = re.compile(r"\[\s*\[\s*aicore\s*\]\s*\]")
_SINGLE = re.compile(r"(?<!\[)\[\s*aicore\s*\](?!\s*\])" + _REST)
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def uses_attribute(source: str) -> bool:
    """Return whether the text has ``[aicore]`` outside macro definitions, which may be unused."""
    return _SINGLE.search(_DEFINITION.sub("", source)) is not None


def without_attributes(preprocessed: str) -> str:
    """Blank out both bracket forms; lines and columns stay the same."""
    text = _DOUBLE.sub(_blank, preprocessed)
    return _SINGLE.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found.group())
