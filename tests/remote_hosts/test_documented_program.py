"""The first program of docs/remote-hosts.md runs as it is written there, with another address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from remote_hosts import Agent

PAGE = Path(__file__).parents[2] / "docs" / "remote-hosts.md"


def test_the_first_program_of_the_documentation(agent: Agent, keys: Path, tmp_path: Path) -> None:
    programs = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (program,) = [one for one in programs if "graph_function_that_uses" in one]
    assert program.count("tcp://host1:7700") == 1
    file = tmp_path / "program.py"
    file.write_text(program.replace("tcp://host1:7700", agent.address))
    (tmp_path / "keys").symlink_to(keys)
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[0. 1. 2. 3.]\n", done.stderr
