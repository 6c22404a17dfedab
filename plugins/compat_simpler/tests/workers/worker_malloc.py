"""Copy to and from memory of a chip: python worker_malloc.py -p a2a3sim -d 0."""

import argparse

import numpy as np

from simpler.worker import Worker

parser = argparse.ArgumentParser()
parser.add_argument("-p", "--platform", required=True)
parser.add_argument("-d", "--device", type=int, default=0)
options = parser.parse_args()

worker = Worker(
    level=2, platform=options.platform, runtime="host_build_graph", device_id=options.device
)
worker.init()
sent = np.arange(1000, dtype=np.float32)
received = np.zeros_like(sent)
buffer = worker.malloc(sent.nbytes)
assert buffer.base != 0
worker.copy_to(buffer, sent)
worker.copy_from(received, buffer)
worker.free(buffer)
worker.close()
assert (sent == received).all()
print("equal")
