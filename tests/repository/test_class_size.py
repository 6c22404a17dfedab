"""A class has one responsibility: at most 25 methods, and about 15 fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

METHODS = 25
FIELDS = 20
TEMPLATE = "plugins/devkit/src/pto_devkit/skeleton/plugin"
# Classes that are still larger, with the number of their methods and fields. The numbers may only
# fall.
LARGER = {
    # a method for each entry of the backend table
    "plugins/backend_a2a3/native/host/table/device.hpp:CardDevice": (29, 17),
    "plugins/backend_sim/native/device.hpp:SimDevice": (39, 19),
    "plugins/backend_sim/native/engine/pool.hpp:Pool": (50, 17),
    "plugins/backend_sim/native/memory/device_memory.hpp:DeviceMemory": (35, 18),
    "plugins/backend_sim/native/run/run.hpp:SimRun": (30, 13),
    "plugins/runtime_hbg/native/src/graph.hpp:Graph": (30, 16),
    "plugins/runtime_hbg/native/src/scheduler.hpp:Scheduler": (30, 10),
    "plugins/runtime_pto2/native/tests/one_thread.hpp:OneThread": (22, 23),
    "pto_core/include/pto/engine/region_grid.hpp:RegionGrid": (26, 17),
    "pto_core/include/pto/engine/region_index.hpp:RegionIndex": (43, 8),
    "pto_core/native/device.hpp:OpenDevice": (44, 19),
    "pto_core/native/graph.hpp:Graph": (26, 14),
    # the arguments of a call, and what follows from them
    "pto_core/native/worker/driver/submit_call.hpp:SubmitCall": (1, 23),
    # a method for each event
    "pto_core/native/worker/engine/engine.hpp:Engine": (29, 1),
    "pto_core/native/run.hpp:Run": (38, 28),
    "pto_core/native_tests/region_property_test.cpp:Round": (26, 10),
    "tests/workers/test_two_threads.py:World": (32, 0),
}


def test_classes_are_small_and_exceptions_are_needed(checkout):
    large = {}
    still_large = set()
    for path in checkout.with_suffix(".py", ".h", ".hpp", ".cpp"):
        measure = python_classes if path.suffix == ".py" else native_classes
        for name, methods, fields in measure(path.read_text()):
            key = f"{checkout.name(path)}:{name}"
            most_methods, most_fields = LARGER.get(key, (METHODS, FIELDS))
            if methods > max(most_methods, METHODS) or fields > max(most_fields, FIELDS):
                large[key] = (methods, fields)
            if methods > METHODS or fields > FIELDS:
                still_large.add(key)
    assert not large, f"classes with more than {METHODS} methods or {FIELDS} fields: {large}"
    assert set(LARGER) <= still_large, f"remove from LARGER: {set(LARGER) - still_large}"


def python_classes(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, methods and fields of each class; 0 fields, as Python defines them anywhere."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = (ast.FunctionDef, ast.AsyncFunctionDef)
            yield node.name, sum(isinstance(each, methods) for each in node.body), 0


def native_classes(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, methods and fields of each class; overloads count, constructors do not.

    In our clang-format style, a member is indented by two columns, and its continuation lines
    further.
    """
    lines = text.split("\n")
    opening = re.compile(r"^( *)(?:class|struct) (?:alignas\(\S+\) )?([\w:]+)(?: final)?[^;]*\{$")
    for start, line in enumerate(lines):
        match = opening.match(line)
        if not match:
            continue
        inner = match[1] + "  "
        name = match[2].split("::")[-1]
        methods = fields = 0
        for member in lines[start + 1 :]:
            if member.startswith(match[1] + "}"):
                break
            if not re.match(rf"{inner}[\w\[~]", member):
                continue
            kind = member_kind(member.strip(), name)
            methods += kind == "method"
            fields += kind == "field"
        yield name, methods, fields if methods else 0  # a record without methods is plain data


def member_kind(member: str, owner: str) -> str:
    """Return the kind of a member, judged by the first line of its declaration."""
    if re.match(r"(using|friend|static_assert|enum|class|struct|union|template)\b", member):
        return "other"
    called = re.match(r"[^=(]*?(~?\w+|operator[^(]*)\(", member)
    if called:
        special = called[1].strip("~") == owner or "operator=(" in member
        return "other" if special else "method"
    is_constant = re.match(r"(static constexpr|constexpr static)\b", member)
    return "field" if re.search(r"[;{]", member) and not is_constant else "other"


def test_the_measure_counts_methods_and_fields():
    text = "\n".join(
        [
            "class Owner : public Base {",
            " public:",
            "  Owner(int a);",
            "  ~Owner();",
            "  Owner& operator=(const Owner&) = delete;",
            "  int first() const { return first_; }",
            "  std::vector<int> second(int a,",
            "                          int b);",
            "",
            " private:",
            "  struct Inner {",
            "    int a = 0;",
            "  };",
            "  static constexpr int kMost = 3;",
            "  int first_ = 0;",
            "  std::map<int, int> rest_;",
            "};",
        ]
    )
    assert list(native_classes(text)) == [("Owner", 2, 2), ("Inner", 0, 0)]
    assert list(python_classes("class A:\n  def f(self): ...\n  x = 1\n")) == [("A", 1, 0)]
