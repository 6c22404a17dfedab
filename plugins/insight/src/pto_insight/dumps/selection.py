"""The selection of what a run dumps: kernels, tasks, tensors and runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pto_core.errors import UsageError

_TERM = re.compile(
    r"(?P<kernel>[^#:@,]*)(?:#(?:id(?P<id>\d+)|(?P<first>\d+)(?:-(?P<last>\d+))?))?"
    r"(?::(?P<tensor>[^:@,\[\]]+(?:\[[^\]]*\])?))?(?:@(?P<run>\d+))?"
)


@dataclass(frozen=True)
class Term:
    """One term of a selection. None stands for any value."""

    kernel: str | None
    tasks: range | None
    tensor: str | None
    run: int | None
    id: int | None = None


@dataclass(frozen=True)
class Selection:
    """The terms of a selection. A task is selected if one of them selects it."""

    text: str
    terms: tuple[Term, ...]

    @staticmethod
    def of(text: str) -> Selection:
        """Parse ``[KERNEL][#TASK][:TENSOR][@RUN]``, several with commas. Raises UsageError."""
        terms = []
        # a place such as c[0:64, 0:64] has commas, too
        for part in re.split(r",(?![^\[]*\])", text.replace(" ", "")):
            found = _TERM.fullmatch(part)
            if found is None:
                raise UsageError(
                    f"{text!r} does not select tasks; write KERNEL#TASK:TENSOR@RUN or parts of it, "
                    "such as add, add#3, '#3-5', add:out, @2",
                    name="dump",
                    value=text,
                    expected="[KERNEL][#TASK][:TENSOR][@RUN]",
                )
            first, last = found["first"], found["last"] or found["first"]
            terms.append(
                Term(
                    found["kernel"] or None,
                    range(int(first), int(last) + 1) if first else None,
                    found["tensor"],
                    int(found["run"]) if found["run"] else None,
                    int(found["id"]) if found["id"] else None,
                )
            )
        return Selection(text, tuple(terms))

    def of_run(self, run: int) -> Selection | None:
        """Return the terms that select tasks of a run; None if there are none."""
        terms = tuple(term for term in self.terms if term.run in (None, run))
        return Selection(self.text, terms) if terms else None

    @property
    def recorded(self) -> tuple[str, ...]:
        """The kernels and task ids that must be recorded (``pto/abi/dump.h``); empty for all."""
        names = [f"#{term.id}" if term.id is not None else term.kernel for term in self.terms]
        return () if None in names else tuple(dict.fromkeys(name for name in names if name))

    def terms_of(self, kernel: str, task: int | None, task_id: int = -1) -> list[Term]:
        """Return the terms that may select a task; ``task``: None if its number is not known."""
        return [
            term
            for term in self.terms
            if term.kernel in (None, kernel)
            and term.id in (None, task_id)
            and (task is None or term.tasks is None or task in term.tasks)
        ]


def selects_tensor(terms: list[Term], argument: int, place: str | None) -> bool:
    """Return whether one of the terms may select an argument, by its position or its name.

    ``place``: None if it is not known.
    """
    texts = [term.tensor for term in terms]
    if place is None:
        return any(text is None or not text.isdigit() or text == str(argument) for text in texts)
    names = (None, str(argument), place.replace(" ", ""), place.partition("[")[0])
    return any(text in names for text in texts)
