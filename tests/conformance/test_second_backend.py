"""The same runtime libraries under a backend that was written against the ABI alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core import plugins

INLINE_BACKEND = Path(__file__).parents[1] / "native" / "inline_backend.cpp"
RUNTIMES = [record.name for record in plugins.runtimes()]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_runtime_works_under_the_second_backend(stranger, runtime) -> None:
    stranger.install_backend("inline", stranger.compile(INLINE_BACKEND), {"callbacks"})
    outcomes = stranger.run_contract("RuntimeContract", runtime=runtime, backend="inline")
    failed = {test: problem for test, problem in outcomes.items() if problem}
    assert not failed, failed
    assert {"test_diamond", "test_independent_tasks", "test_public_graph"} <= outcomes.keys()
    claims_publish = "publish" in plugins.load_runtime(runtime).capabilities
    assert ("test_publish_twice" in outcomes) == claims_publish


def test_there_is_a_runtime_to_try() -> None:
    assert RUNTIMES
