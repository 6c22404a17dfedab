"""Generate the level-3 part of docs/states.md from :mod:`pto_core.worker.states`.

``python -m pto_core.worker.states_page docs/states.md`` rewrites this part of the page.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pto_core.worker.states import (
    EVENT_MEANINGS,
    REFERENCE_MEANINGS,
    STATE_MEANINGS,
    TRANSITIONS,
    TaskEvent,
    TaskState,
)

HEADING = "## Level 3 and up: the engine of Workers\n"


def part() -> str:
    """Return the generated part, from its heading to the end of the page."""
    return "\n".join(
        [
            HEADING,
            "Generated from `pto_core/src/pto_core/worker/states.py`; a test compares this part",
            "with it. Rewrite it with `python -m pto_core.worker.states_page docs/states.md`.",
            "",
            "The next state. A pair without an entry is refused and changes nothing.",
            "",
            *_table(),
            "",
            *_diagram(),
            "",
            *_meanings("state", STATE_MEANINGS),
            "",
            *_meanings("event", EVENT_MEANINGS),
            "",
            "References keep a slot alive; the last one that is dropped consumes it.",
            "",
            *_meanings("reference", REFERENCE_MEANINGS),
            "",
        ]
    )


def with_part(page: str) -> str:
    """Return ``page`` with the generated part replaced or appended."""
    before = page.partition("\n" + HEADING)[0]
    return f"{before.rstrip()}\n\n{part()}"


def _table() -> list[str]:
    lines = ["| state |" + "".join(f" `{event.name}` |" for event in TaskEvent)]
    lines.append("| --- |" + " --- |" * len(TaskEvent))
    for state in TaskState:
        cells = (TRANSITIONS.get((state, event)) for event in TaskEvent)
        row = "".join(" |" if target is None else f" `{target.name}` |" for target in cells)
        lines.append(f"| `{state.name}` |{row}")
    return lines


def _diagram() -> list[str]:
    arrows = [
        f"  {state.name} --> {target.name}: {event.name}"
        for (state, event), target in TRANSITIONS.items()
    ]
    return ["```mermaid", "stateDiagram-v2", *arrows, "```"]


def _meanings(what: str, meanings: Mapping[Any, str]) -> list[str]:
    lines = [f"| {what} | meaning |", "| --- | --- |"]
    return lines + [f"| `{key.name}` | {text} |" for key, text in meanings.items()]


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_part(path.read_text()))
