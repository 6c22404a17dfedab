"""Each name of the interface of August 2026 has a test, or a reason why it is refused.

names_of_august_2026.toml lists them; docs/names-of-august-2026.md is written from it by this file
as a program.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = Path(__file__).with_name("names_of_august_2026.toml")
PAGE = ROOT / "docs" / "names-of-august-2026.md"
TITLE = """# Names of August 2026

Each name of the interface of [August 2026](programs-of-august-2026.md): a test or an example that
uses it, or the reason why it is refused. The page is written from
[`tests/repository/names_of_august_2026.toml`](../tests/repository/names_of_august_2026.toml), by
the test beside that file.
"""
# The files of tests and examples, in the order in which they are searched.
FOLDERS = (
    "plugins/runtime_pto2/tests/published_2026_08/programs.cpp",
    "plugins/runtime_pto2/tests/published_2026_08/rest.cpp",
    "plugins/runtime_pto2/tests/published_2026_08",
    "plugins/runtime_pto2/tests",
    "plugins/runtime_hbg/tests",
    "plugins/backend_sim/tests",
    "plugins/compat_simpler/tests",
    "examples",
    "tests/graphs",
    "tests/cases",
)
# A name that other programs use, too, counts only in a file with a name of the interface.
MARK = re.compile(r"\b(?:ChipTaskArgs|ChipTensor|simpler_setup|simpler|2026[-_]08)\b|intrinsic\.h")
# An include, which is kept, or a comment or string of C++.
NO_CODE = re.compile(r'(?ms)(^\s*#\s*include[^\n]*)|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"')


@cache
def sources() -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for path in [ROOT / folder, *sorted((ROOT / folder).rglob("*"))]:
            if path.suffix in {".cpp", ".h", ".py"} and "__pycache__" not in path.parts:
                text = path.read_text("utf-8")
                if MARK.search(text):
                    code = text if path.suffix == ".py" else NO_CODE.sub(r"\1 ", text)
                    found.setdefault(path.relative_to(ROOT).as_posix(), code)
    return found


def users(name: str) -> list[str]:
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    return [path for path, text in sources().items() if word.search(text)]


def page() -> str:
    """Return the page; names that the same files use first share a line."""
    listed = tomllib.loads(NAMES.read_text("utf-8"))
    lines = [TITLE]
    for title, names in listed["supported"].items():
        by_file: dict[str, list[str]] = {}
        for name in names:
            by_file.setdefault((users(name) or ["no test"])[0], []).append(name)
        lines += [f"## {title}\n", "| used in | names |", "| --- | --- |"]
        for path, found in by_file.items():
            shown = ", ".join(f"`{name}`" for name in found)
            lines.append(f"| [{path}](../{path}) | {shown} |")
        lines.append("")
    lines += ["## Refused\n", "| reason | names |", "| --- | --- |"]
    for reason, names in listed["refused"].items():
        lines.append(f"| {reason} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def test_each_supported_name_has_a_test() -> None:
    supported = tomllib.loads(NAMES.read_text("utf-8"))["supported"]
    names = [name for group in supported.values() for name in group]
    assert len(names) == len(set(names)) > 100
    assert [name for name in names if not users(name)] == []


def test_the_page_has_the_names_and_their_tests() -> None:
    assert PAGE.read_text("utf-8") == page(), f"run python {Path(__file__).relative_to(ROOT)}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
