"""Several processes use one device number at once: each has a separate device, and none waits."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "05_paged_attention"
PROCESSES = 3


def test_paged_attention_three_times_at_once(case) -> None:
    """All start with the same empty cache, so they also compile at the same time."""
    case.cache = case.folder / "cache"
    arguments = ("-d", "0", "--repeat", "5", "-q")
    runs = [case.start_command("run", str(EXAMPLE), *arguments) for _ in range(PROCESSES)]
    for run in runs:
        output, errors = run.communicate()
        assert (run.returncode, errors) == (0, "")
        assert output == ("batch_256_context_48: passed (a2a3sim, host_build_graph, device 0)\n")
    assert case.leftovers() == []
