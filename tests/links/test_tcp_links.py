"""A second link, over TCP in plain Python, passes the contract of links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tcp_links

TEST = f"""
from link_contract.contract import LinkContract


class TestTcp(LinkContract):
    link = {tcp_links.NAME!r}
    giant = {tcp_links.GIANT!r}
"""


def test_the_example_passes_its_contract(tmp_path: Path) -> None:
    tcp_links.install(tmp_path)
    test = tmp_path / "test_tcp.py"
    test.write_text(TEST)
    paths = [str(tmp_path), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
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
    assert "22 passed" in done.stdout
    assert "skipped" not in done.stdout
