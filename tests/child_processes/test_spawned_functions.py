"""Functions of the program's main module in spawned children, for each way to run a program."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import math
    from dataclasses import dataclass
    from functools import partial

    from pto_core import Out, Scalar, TaskArgs, TensorArgType, Worker, task

    FACTOR = 2


    def doubled(value):
        return FACTOR * value


    def top_level(args):
        args.tensor(0)[:] = doubled(1)


    def nested(value):
        def write(args):
            args.tensor(0)[:] = doubled(value) + math.floor(0.5)

        return write


    @dataclass
    class Writer:
        value: int

        def __call__(self, args):
            args.tensor(0)[:] = doubled(self.value)

        def write(self, args):
            self(args)


    @task
    def typed(value: Scalar, out: Out):
        out[:] = doubled(value)


    def write_value(value, args):
        args.tensor(0)[:] = doubled(value)


    def run(worker, handle):
        row = worker.shared_array(4)
        args = TaskArgs()
        args.add_tensor(row, TensorArgType.OUTPUT)
        worker.run(lambda orch, _, config: orch.submit_sub(handle, args))
        return int(row.sum())


    def targets():
        by_object = [top_level, nested(2), Writer(3), Writer(4).write, partial(write_value, 5)]
        return [*by_object, "__main__:top_level"]


    def main():
        with Worker(3, num_sub_workers=2, start_method="spawn", heap_ring_size=1 << 20) as worker:
            early = [worker.register(target) for target in targets()]
            found = [run(worker, handle) for handle in early]
            found += [run(worker, worker.register(target)) for target in targets()]
            row = worker.shared_array(4)
            with worker.session() as s:
                s.submit(typed, 6, row)
            print(*found, int(row.sum()))


    MAIN
"""
EXPECTED = " ".join(["8 16 24 32 40 8"] * 2 + ["48"]) + "\n"
GUARDED = 'if __name__ == "__main__":\n        main()'

# A program that acts like the kernel of a notebook: its main module has no file, and runs code.
KERNEL = """
import sys, types
sys.modules["__main__"] = shell = types.ModuleType("__main__")
cells = open(sys.argv[1]).read().split("\\n\\n\\n")
for number, cell in enumerate(cells):
    exec(compile(cell, f"<cell {number}>", "exec"), shell.__dict__)
"""


def program(main: str) -> str:
    return textwrap.dedent(PROGRAM.replace("MAIN", main))


def run(arguments: list[str], folder: Path, stdin: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        input=stdin,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("main", [GUARDED, "main()"], ids=["guarded", "unguarded"])
def test_a_script(tmp_path: Path, main: str) -> None:
    """Its children have the arguments of the program."""
    text = (
        program(main)
        .replace("FACTOR = 2", "import sys")
        .replace("return FACTOR * value", "return int(sys.argv[1]) * value")
    )
    (tmp_path / "my-script.py").write_text(text)
    assert run(["my-script.py", "2"], tmp_path) == EXPECTED


def test_a_module_of_a_package_run_by_name(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "program.py").write_text(program(GUARDED))
    assert run(["-m", "package.program"], tmp_path) == EXPECTED


def test_a_command(tmp_path: Path) -> None:
    assert run(["-c", program("main()")], tmp_path) == EXPECTED


def test_the_standard_input(tmp_path: Path) -> None:
    assert run(["-"], tmp_path, stdin=program("main()")) == EXPECTED


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "cells.txt").write_text(program("main()"))
    assert run(["-c", KERNEL, "cells.txt"], tmp_path) == EXPECTED


def test_a_process_of_multiprocessing(tmp_path: Path) -> None:
    """The main module of a child of multiprocessing is called __mp_main__."""
    started = """if __name__ == "__main__":
        import multiprocessing

        process = multiprocessing.get_context("spawn").Process(target=main)
        process.start()
        process.join()"""
    (tmp_path / "program.py").write_text(program(started))
    assert run(["program.py"], tmp_path) == EXPECTED
