"""f = (a + b + 1) * (a + b + 2) on a chip: python vector_add.py -p a2a3sim -d 0."""

import argparse
from pathlib import Path

import compiled
import numpy as np

from simpler.task_interface import (
    ArgDirection,
    CallConfig,
    ChipCallable,
    CoreCallable,
    DataType,
    TaskArgs,
    TensorArgType,
    scalar_to_uint64,
)
from simpler.worker import Worker

KERNELS = Path(__file__).parents[1] / "scenes" / "kernels"
IN, OUT = ArgDirection.IN, ArgDirection.OUT


def vector() -> ChipCallable:
    binary = KERNELS / "aiv" / "binary.cpp"
    children = [
        (0, CoreCallable.build([IN, IN, OUT], compiled.incore(binary, f"-I{KERNELS / 'sum'}"))),
        (1, CoreCallable.build([IN, OUT], compiled.incore(KERNELS / "aiv" / "add_scalar.cpp"))),
        (2, CoreCallable.build([IN, IN, OUT], compiled.incore(binary, f"-I{KERNELS / 'product'}"))),
    ]
    library = compiled.orchestration(KERNELS / "orchestration" / "vector.cpp", "build_vector")
    return ChipCallable.build([IN, IN, OUT], "build_vector", library, children)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--platform", required=True)
    parser.add_argument("-d", "--device", type=int, default=0)
    options = parser.parse_args()
    size = 128
    a, b = np.full(size, 2, np.float32), np.full(size, 3, np.float32)
    out = np.zeros(size, np.float32)
    worker = Worker(
        level=2,
        platform=options.platform,
        runtime="tensormap_and_ringbuffer",
        device_id=options.device,
    )
    handle = worker.register(vector())
    worker.init()
    buffers = [worker.malloc(a.nbytes) for _ in range(3)]
    args = TaskArgs()
    for buffer, content, tag in zip(
        buffers, (a, b, None), (TensorArgType.INPUT,) * 2 + (TensorArgType.OUTPUT,), strict=True
    ):
        if content is not None:
            worker.copy_to(buffer, content)
        args.add_tensor(buffer.tensor((size,), DataType.FLOAT32), tag)
    args.add_scalar(scalar_to_uint64(2.0))
    worker.run(handle, args, CallConfig())
    worker.copy_from(out, buffers[2])
    for buffer in buffers:
        worker.free(buffer)
    worker.close()
    assert (out == 42).all(), out
    print("f =", out[0])


if __name__ == "__main__":
    main()
