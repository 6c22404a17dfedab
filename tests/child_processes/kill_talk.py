"""The protocol between a process whose children are killed and its observer."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Talk:
    """Reports progress to the observer; every message waits for an answer."""

    def __init__(self, events: int, answers: int) -> None:
        self.events = events
        self._answers = os.fdopen(answers, "rb", buffering=0)

    def say(self, what: str, **more: Any) -> dict[str, Any]:
        os.write(self.events, json.dumps({"say": what, **more}).encode() + b"\n")
        answer = self._answers.readline()
        if not answer:
            os._exit(1)  # the observer has exited
        heard: dict[str, Any] = json.loads(answer)
        return heard

    @contextmanager
    def kills(self, phase: str) -> Iterator[Counter[str]]:
        """Let the observer kill children inside the block; return how many it killed."""
        counts: Counter[str] = Counter()
        self.say(phase)
        try:
            yield counts
        finally:
            counts.update(self.say("over"))
