"""A short run of the soak test of .ci/nightly with random kills."""

from __future__ import annotations

from kill_soak import faults_of_a_run, soak

SECONDS, WORKERS_OF_A_PROCESS = 2, 4


def test_kills_lose_no_task_and_leave_no_resource() -> None:
    assert faults_of_a_run(soak, SECONDS, WORKERS_OF_A_PROCESS) == []
