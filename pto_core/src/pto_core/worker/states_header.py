"""Generate a C++ header from the tables of :mod:`pto_core.worker.states`.

``python -m pto_core.worker.states_header FILE`` writes native/worker/engine/states.hpp.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from pto_core.worker.states import TRANSITIONS, TaskEvent, TaskState

NOT_A_STATE = 255


def header() -> str:
    """Return the text of the C++ header."""
    return "\n".join(
        [
            "// The states of a task and their transitions.",
            "//",
            "// Generated from pto_core/worker/states.py by python -m"
            " pto_core.worker.states_header; a",
            "// test compares this file with it.",
            "#pragma once",
            "",
            "#include <cstdint>",
            "",
            "namespace pto::worker {",
            "",
            *_enumeration("TaskState", TaskState),
            f"constexpr uint32_t kStates = {len(TaskState)};",
            f"constexpr uint8_t kNotAState = {NOT_A_STATE};",
            "",
            *_enumeration("TaskEvent", TaskEvent),
            f"constexpr uint32_t kStateEvents = {len(TaskEvent)};",
            "",
            "// clang-format off",
            *_names("kStateNames", TaskState),
            *_names("kStateEventNames", TaskEvent),
            "",
            "// `next[state][event]`: the next state, or kNotAState.",
            "struct Transitions {",
            "  uint8_t next[kStates][kStateEvents];",
            "};",
            "",
            "constexpr Transitions kTransitions = {{",
            *(f"    {{{', '.join(map(str, row))}}},  // {state.name}" for state, row in _rows()),
            "}};",
            "// clang-format on",
            "",
            "}  // namespace pto::worker",
            "",
        ]
    )


def _rows() -> Iterable[tuple[TaskState, list[int]]]:
    for state in TaskState:
        yield state, [int(TRANSITIONS.get((state, event), NOT_A_STATE)) for event in TaskEvent]


def _constant(name: str) -> str:
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def _enumeration(name: str, members: type[IntEnum]) -> list[str]:
    lines = [f"  {_constant(each.name)} = {each.value}," for each in members]
    lines[-1] = lines[-1].removesuffix(",")
    return [f"enum class {name} : uint8_t {{", *lines, "};"]


def _names(constant: str, members: type[IntEnum]) -> list[str]:
    lines = [f'    "{each.name}",' for each in members]
    return [f"constexpr const char* {constant}[] = {{", *lines, "};"]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(header())
