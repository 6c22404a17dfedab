"""The words and names that docs/glossary.md excludes do not appear in the tree."""

from __future__ import annotations

import re
from pathlib import Path

GLOSSARY = Path(__file__).resolve().parents[2] / "docs" / "glossary.md"
HEADING = "## Words that are not used"
SKIPPED = {GLOSSARY, Path(__file__).resolve(), GLOSSARY.parents[1] / "LICENSE"}
TEXT = {".py", ".h", ".hpp", ".cpp", ".md", ".toml", ".sh", ".cmake", ".txt", ""}


def test_old_names_and_unclear_words_are_not_used(checkout):
    patterns = [one_of(replaced_names()), one_of(unclear_words(), re.IGNORECASE)]
    found = []
    for path in checkout.files:
        if path in SKIPPED or path.suffix not in TEXT:
            continue
        lines = path.read_text().splitlines()
        found += [
            f"{checkout.name(path)}:{number}: {match[0]!r}"
            for number, line in enumerate(lines, 1)
            for pattern in patterns
            if (match := pattern.search(line))
        ]
    assert not found, "docs/glossary.md names what to write instead:\n" + "\n".join(found)


def test_the_glossary_defines_each_term_once():
    terms = [row[0] for row in rows(GLOSSARY.read_text().split(HEADING)[0])]
    assert len(terms) > 40
    assert len(terms) == len(set(terms))


def test_the_tables_are_read():
    assert {"Crew", "crew", "Board"} <= set(replaced_names())
    assert {"whoever", "nobody", "let go of"} <= set(unclear_words())


def one_of(words: list[str], flags: int = 0) -> re.Pattern[str]:
    """Match each of these words as a whole word."""
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", flags)


def replaced_names() -> list[str]:
    """List the names in backticks in the column "not"."""
    terms = rows(GLOSSARY.read_text().split(HEADING)[0])
    return [name for row in terms for name in re.findall(r"`([^`]+)`", row[2])]


def unclear_words() -> list[str]:
    """List the words of the last table."""
    words = rows(GLOSSARY.read_text().split(HEADING)[1])
    return [word for row in words for word in row[0].split(", ")]


def rows(text: str) -> list[list[str]]:
    """Return the cells of each table row, without heads and separator lines."""
    table = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] + [""] for row in table]
    return [row for row in cells if row[0] not in {"term", "not"} and not row[0].startswith("--")]
