"""`build_mode` of aicpu_build_graph, set in every possible place, as an orchestration sees it."""

from __future__ import annotations

import pytest

RUNTIME = "aicpu_build_graph"
VARIABLE = "PTO_AICPU_BUILD_GRAPH_BUILD_MODE"


@pytest.fixture
def mode_is_0(case):
    """Return a case whose orchestration returns 91 if ``build_mode`` is not 0."""
    return case.graph(RUNTIME, "if (runtime->build_mode != 0) return 91;")


def assert_mode(mode: int, done) -> None:
    """Require that the run passed if the mode was 0, and that it failed with code 91 otherwise."""
    if mode == 0:
        assert done.returncode == 0, done.stderr
        assert "passed (a2a3sim, aicpu_build_graph" in done.stdout
    else:
        assert done.returncode == 4, done.stdout
        assert "returned 91" in done.stderr


def test_environment(mode_is_0) -> None:
    mode_is_0.variables[VARIABLE] = "0"
    assert_mode(0, mode_is_0.run("-r", RUNTIME))


def test_environment_of_the_case(mode_is_0) -> None:
    mode_is_0.config(f"RUNTIME_ENV = {{{VARIABLE!r}: '0'}}\n")
    assert_mode(0, mode_is_0.run("-r", RUNTIME))


def test_setting_beats_the_environment(mode_is_0) -> None:
    mode_is_0.variables[VARIABLE] = "0"
    assert_mode(1, mode_is_0.run("-r", RUNTIME, "--set", "hbg.build_mode=1"))


SEEN = "reinterpret_cast<volatile float*>(runtime->orch_args[1])[63] != 0"


def test_mode_1_runs_a_task_while_the_orchestration_continues(case) -> None:
    case.graph(RUNTIME, f"if (!add()) return 93;\n  while (!({SEEN})) {{}}")
    done = case.run("-r", RUNTIME, "--timeout", "60")
    assert done.returncode == 0, done.stderr


def test_mode_0_runs_no_task_before_the_orchestration_ends(case) -> None:
    turns = "for (long turn = 0; turn < 50'000'000L; ++turn)"
    case.graph(RUNTIME, f"if (!add()) return 93;\n  {turns} if ({SEEN}) return 92;")
    done = case.run("-r", RUNTIME, "--set", "hbg.build_mode=0")
    assert done.returncode == 0, done.stderr
