"""The environment of children: the caller's environment is never passed on unchanged."""

from __future__ import annotations

import os

from pto_core.config import child_environment


def test_a_childs_environment_is_its_own(monkeypatch):
    monkeypatch.setenv("PTO_TEST_KEPT", "1")
    monkeypatch.setenv("PTO_TEST_CHANGED", "1")
    before = dict(os.environ)
    child = child_environment({"PTO_TEST_CHANGED": "2", "PTO_TEST_ADDED": "3"})
    assert (child["PTO_TEST_KEPT"], child["PTO_TEST_CHANGED"]) == ("1", "2")
    assert child["PTO_TEST_ADDED"] == "3"
    child["PTO_TEST_KEPT"] = "9"
    assert dict(os.environ) == before
