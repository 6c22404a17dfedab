"""An agent on this machine, over the link of the interface's example."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tcp_links
from remote_hosts import Agent, running_agent


@pytest.fixture(scope="session")
def tcp_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the example link for this process and its children; return its name."""
    folder = tmp_path_factory.mktemp("links")
    tcp_links.install(folder)
    sys.path.append(str(folder))
    yield tcp_links.NAME
    sys.path.remove(str(folder))


@pytest.fixture
def agent(tcp_link: str, tmp_path: Path) -> Iterator[Agent]:
    with running_agent(tmp_path, tcp_link) as made:
        yield made
