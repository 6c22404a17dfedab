"""A type's name says which type is meant: no two types that other files use share one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

# Words of which each part of the product has a type: a name that begins with one is unique in the
# whole product. Any other name is unique in its distribution.
FAMILIES = re.compile("Task|Tensor|Place|Device|Session|Run|Submit|Driv|Child|Worker")
# The C++ type and its Python counterpart: the same values in both languages.
IN_BOTH_LANGUAGES = {
    "Candidate",
    "ChildEnd",
    "Deadlock",
    "Direction",
    "Kind",
    "LogAnalysis",
    "Outcome",
    "Result",
    "TaskEvent",
    "TaskHandle",
    "TaskSignature",
    "TaskState",
    "Why",
}
# Interfaces for users' programs, programs of the template, and what has the names of the ABI or of
# the engine because it is compared with them.
NOT_READ = re.compile(
    r"/tests/|/native_tests/|/skeleton/|/src/\w+/include/|pto_compat_simpler/"
    r"|pto_devkit/(abi\.py|engine/)"
)
CPP_TYPE = re.compile(
    r"^(?:template\s*<[^>]*>\s*)?(?:class|struct|enum class|union)\s+(?:alignas\(\w+\)\s+)?"
    r"([A-Za-z_]\w*)\s*(?:final\s*)?(?::[^:;]|\{)",
    re.MULTILINE,
)


def types_of(path: str, text: str) -> Iterator[str]:
    if path.endswith(".py"):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name
    elif path.endswith(".hpp"):
        yield from CPP_TYPE.findall(text)


def shared_names(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the files of each name that several types have and should not."""
    files: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path, text in texts.items():
        if not path.startswith(("pto_core/", "plugins/")) or NOT_READ.search(path):
            continue
        part = "/".join(Path(path).parts[: 1 if path.startswith("pto_core/") else 2])
        for name in types_of(path, text):
            files["" if FAMILIES.match(name) else part, name].append(path)
    return {
        name: paths
        for (_, name), paths in files.items()
        if len(paths) > 1
        and not (name in IN_BOTH_LANGUAGES and len({Path(path).suffix for path in paths}) == 2)
    }


def test_no_two_types_share_a_name(checkout):
    files = checkout.with_suffix(".py", ".hpp")
    assert shared_names({checkout.name(path): path.read_text() for path in files}) == {}


def test_an_equal_name_is_found():
    two = {"pto_core/a.py": "class Job:\n    pass\n", "pto_core/b.hpp": "struct Job {\n};\n"}
    assert shared_names(two) == {"Job": list(two)}
    apart = {"plugins/x/a.py": "class Job:\n    pass\n", "plugins/y/b.hpp": "struct Job {\n};\n"}
    assert shared_names(apart) == {}
    family = {path: text.replace("Job", "TaskX") for path, text in apart.items()}
    assert shared_names(family) == {"TaskX": list(apart)}
