"""A Worker whose children are started anew instead of forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

MODULE = """
    def add(args):
        args.tensor(0)[:] += 1
"""
PROGRAM = """
    import added

    from pto_core import TaskArgs, TensorArgType, Worker


    def graph_over(handle, rows):
        def graph(orch, args, config):
            for row in rows:
                given = TaskArgs()
                given.add_tensor(row, TensorArgType.INOUT)
                orch.submit_sub(handle, given)

        return graph


    if __name__ == "__main__":
        with Worker(3, num_sub_workers=2, start_method="spawn", heap_ring_size=1 << 20) as worker:
            early = worker.shared_array((4, 8))
            handle = worker.register(added.add)
            worker.run(graph_over(handle, early))
            late = worker.shared_array((4, 8))
            worker.run(graph_over(worker.register("added:add"), late))
            print(early.sum(), late.sum())
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "added.py").write_text(textwrap.dedent(MODULE))
    (folder / "program.py").write_text(textwrap.dedent(program))
    return subprocess.run(
        [sys.executable, str(folder / "program.py")], capture_output=True, text=True, timeout=120
    )


def test_children_see_arrays_made_before_and_after_their_start(tmp_path) -> None:
    done = run(tmp_path, PROGRAM)
    assert (done.stdout, done.stderr) == ("32.0 32.0\n", "")


def test_what_only_a_fork_hands_over_is_refused_by_name(tmp_path) -> None:
    done = run(tmp_path, PROGRAM.replace("added.add)", "lambda args: None)"))
    assert done.returncode == 1
    assert "UsageError" in done.stderr
    assert "serialise=True" in done.stderr
