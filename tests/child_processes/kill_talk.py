"""How a process that is shot at and its observer talk."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Talk:
    """Tells the observer how far it is; every word waits for an answer."""

    def __init__(self, events: int, answers: int) -> None:
        self.events = events
        self._answers = os.fdopen(answers, "rb", buffering=0)

    def say(self, what: str, **more: Any) -> dict[str, Any]:
        os.write(self.events, json.dumps({"say": what, **more}).encode() + b"\n")
        answer = self._answers.readline()
        if not answer:
            os._exit(1)  # the observer is gone
        heard: dict[str, Any] = json.loads(answer)
        return heard

    @contextmanager
    def kills(self, phase: str) -> Iterator[Counter[str]]:
        """Let children be killed inside the block; says after it how many were."""
        counts: Counter[str] = Counter()
        self.say(phase)
        try:
            yield counts
        finally:
            counts.update(self.say("over"))
