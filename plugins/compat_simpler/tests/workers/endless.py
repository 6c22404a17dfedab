"""Two runs that do not end: python endless.py LEVEL PLACE. PLACE: where Ctrl-C interrupts it."""

import sys
import time
from pathlib import Path

import numpy as np

from simpler.task_interface import ArgDirection, ChipCallable, CoreCallable, TaskArgs
from simpler.worker import Worker
from simpler_setup import KernelCompiler

SOURCES = Path(__file__).parent / "kernels"


def endless() -> ChipCallable:
    compiler = KernelCompiler("a2a3sim")
    kernel = CoreCallable.build(
        [ArgDirection.INOUT], compiler.compile_incore(SOURCES / "endless.cpp")
    )
    library = compiler.compile_orchestration("tensormap_and_ringbuffer", SOURCES / "one_task.cpp")
    return ChipCallable.build([ArgDirection.INOUT], "one_task", library, [(0, kernel)])


def main(level: str, place: str) -> None:
    where = {"device_id": 0} if level == "2" else {"device_ids": [0, 1]}
    worker = Worker(level=int(level), platform="a2a3sim", **where)
    handle = worker.register(endless())
    worker.init()
    args = TaskArgs()
    args.add_tensor(np.zeros(4, np.float32) if level == "2" else worker.alloc_shared_tensor((4,)))
    runs = [worker.submit(handle, args) for _ in range(2)]
    print("submitted", flush=True)
    if place == "wait":
        runs[0].wait()
    elif place == "close":
        worker.close()
    else:
        with worker:
            while True:  # a signal just before a sleep does not end it
                time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
