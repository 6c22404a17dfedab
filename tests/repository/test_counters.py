"""docs/json.md names exactly the counters that the runtimes report."""

from __future__ import annotations

import re
from pathlib import Path

from pto_core import open_device, plugins

PAGE = Path(__file__).resolve().parents[2] / "docs" / "json.md"
SECTION = re.compile(r"^## Statistics$(.*?)^## ", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"`([a-z0-9_]+)`")


def one_of_many(counter: str) -> str:
    """Return the names for the first ring and the first scheduler only."""
    return re.sub(r"^(ring|dispatches_)\d", r"\g<1>0", counter)


def base(counter: str) -> str:
    return re.sub(r"_(peak|ns)$", "", counter)


def test_the_page_names_them_all() -> None:
    (section,) = SECTION.findall(PAGE.read_text())
    named = {base(word) for word in WORD.findall(section)}
    kept = set()
    for found in plugins.installed("runtime"):
        with open_device("a2a3sim", runtime=found.name) as device:
            kept |= {base(one_of_many(name)) for name in device.run(lambda rt: None).statistics}
    assert kept - named == set()
    assert named - kept - {"_ns", "_bytes", "_peak", "", "tensormap_and_ringbuffer"} == set()
