"""Open and close a chip: python hello_worker.py -p a2a3sim -d 0."""

import argparse

from simpler.worker import Worker

parser = argparse.ArgumentParser()
parser.add_argument("-p", "--platform", required=True)
parser.add_argument("-d", "--device", type=int, default=0)
options = parser.parse_args()

worker = Worker(
    level=2,
    platform=options.platform,
    runtime="tensormap_and_ringbuffer",
    device_id=options.device,
)
worker.init()
print("hello from", options.platform, options.device)
worker.close()
