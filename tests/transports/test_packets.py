"""The Python transport in the interface's docstring satisfies the contract of transports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import packets

TEST = """
from pto_devkit import TransportContract


class TestPackets(TransportContract):
    transport = "packets"

    @staticmethod
    def spoil_frames(parent_end, noise):
        parent_end.packets.send(noise)

    @staticmethod
    def spoil_answers(child_end, noise):
        child_end.packets.send(noise)
"""


def test_the_example_passes_its_contract(tmp_path: Path) -> None:
    packets.install(tmp_path)
    test = tmp_path / "test_packets.py"
    test.write_text(TEST)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(test)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "skipped" not in done.stdout
