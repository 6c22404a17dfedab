"""A short run of the soak test of remote children with random kills and cuts."""

from __future__ import annotations

from kill_soak import faults_of_a_run
from remote_kill_soak import remote_soak

SECONDS, WORKERS_OF_A_PROCESS = 5, 3


# Invariant: After kills on both hosts, neither has an additional process, descriptor, mapping or
# file.
def test_kills_and_cuts_lose_no_task_and_leave_no_resource() -> None:
    assert faults_of_a_run(remote_soak, SECONDS, WORKERS_OF_A_PROCESS) == []
