"""A Worker whose children are spawned instead of forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

MODULE = """
    from pto_core import In, Out, TaskArgs, kernel


    def add(args):
        args.tensor(0)[:] += 1


    @kernel(core="aiv")
    def double(a: In, b: Out) -> None:
        b[:] = 2 * a


    def double_on_chip(rt, a: In, b: Out):
        rt.submit(double, a, b)


    def args_of(tensor, tag):
        made = TaskArgs()
        made.add_tensor(tensor, tag)
        return made
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


def test_a_function_that_cannot_be_serialised_is_refused_by_name(tmp_path) -> None:
    program = PROGRAM.replace("added.add)", "lambda args: lock)")
    program = program.replace("    import added", "    import threading\n    import added")
    done = run(
        tmp_path,
        program.replace("\n    if __name__", "    lock = threading.Lock()\n    if __name__"),
    )
    assert done.returncode == 1
    assert "UsageError: <lambda> cannot be serialised: cannot pickle '_thread.lock'" in done.stderr


def test_a_function_that_was_edited_before_the_start_travels_by_code(tmp_path) -> None:
    """Children that import the file get the old code: the function was edited only in memory."""
    edit = "    added.add.__code__ = (lambda args: args.tensor(0).fill(3)).__code__\n"
    done = run(tmp_path, PROGRAM.replace("\n    if __name__", edit + "    if __name__"))
    assert (done.stdout, done.stderr) == ("96.0 96.0\n", "")


POD = """
    import added

    from pto_core import DataType, TensorArgType, Worker


    def graph_of(add):
        def on_host(orch, args, config):
            own = orch.alloc((8,), DataType.FLOAT32)
            orch.submit_sub(add, added.args_of(own, TensorArgType.INOUT))
            orch.submit_sub(add, added.args_of(args.tensor(0), TensorArgType.INOUT))

        return on_host


    if __name__ == "__main__":
        settings = {"start_method": "spawn", "heap_ring_size": 1 << 20}
        with Worker(4, **settings) as w4:
            w3 = Worker(3, num_sub_workers=1, **settings)
            handle = w4.register(graph_of(w3.register(added.add)), serialise=True)
            w4.add_worker(w3)
            rows = [w4.shared_array(8)]

            def graph(orch, args, config):
                for row in rows:
                    given = added.args_of(row, TensorArgType.INOUT)
                    orch.submit_next_level(handle, given, config)

            w4.run(graph)
            rows.append(w4.shared_array(8))
            w4.run(graph)
            print(*(row.sum() for row in rows))
"""


def test_children_of_a_spawned_worker_see_the_memory_of_all_levels(tmp_path) -> None:
    done = run(tmp_path, POD)
    assert (done.stdout, done.stderr) == ("16.0 8.0\n", "")


BELOW_FORKED = """
    import added

    from pto_core import ChipCallable, TensorArgType, Worker

    CHIP = {"platform": "a2a3sim", "runtime": "tensormap_and_ringbuffer", "device_ids": [0]}


    def forwarding(chip):
        def on_host(orch, args, config):
            given = added.args_of(args.tensors[0], TensorArgType.INPUT)
            given.add_tensor(args.tensors[1], TensorArgType.OUTPUT)
            orch.submit_next_level(chip, given, config)

        return on_host


    if __name__ == "__main__":
        with Worker(4, heap_ring_size=1 << 20) as w4:
            a = w4.shared_array(8)
            w3 = Worker(3, start_method="spawn", heap_ring_size=1 << 20, **CHIP)
            chip = w3.register(ChipCallable(added.double_on_chip))
            host = w4.register(forwarding(chip))
            w4.add_worker(w3)
            a[:], b = 3, w4.shared_array(8)

            def graph(orch, args, config):
                given = added.args_of(a, TensorArgType.INPUT)
                given.add_tensor(b, TensorArgType.OUTPUT)
                orch.submit_next_level(host, given, config)

            w4.run(graph)
            print(b.sum())
"""


def test_a_chip_of_a_spawned_host_below_a_forked_top_sees_its_memory(tmp_path) -> None:
    done = run(tmp_path, BELOW_FORKED)
    assert (done.stdout, done.stderr) == ("48.0\n", "")
