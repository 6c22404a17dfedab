"""Agents on this machine, and their links."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import counting_link
import faulty_link
import pytest
import tcp_links
from network import MODULE, NAME, VARIABLE, Network, running_network
from remote_hosts import Agent, running_agent, wait_until

from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys


@contextmanager
def installed(factory: pytest.TempPathFactory, name: str, module: str | None) -> Iterator[Path]:
    """Install a link for this process and its children; yield the folder of its module."""
    folder = factory.mktemp(name)
    tcp_links.install(folder, name, module)
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def tcp_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the link over TCP; return its name."""
    with installed(tmp_path_factory, tcp_links.NAME, None):
        yield tcp_links.NAME


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the link that records its traffic; return its name."""
    with installed(tmp_path_factory, counting_link.NAME, counting_link.MODULE):
        yield counting_link.NAME


@pytest.fixture(scope="session")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Install the link with faults; return its name."""
    with installed(tmp_path_factory, faulty_link.NAME, faulty_link.MODULE):
        yield faulty_link.NAME


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a key set for the link zmq."""
    folder = tmp_path_factory.mktemp("keys")
    new_keys(folder, load_links("zmq"))
    return folder


@pytest.fixture(scope="module")
def agent_of_module(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Run one agent over the link zmq, with keys, for all tests of a file."""
    with running_agent(tmp_path_factory.mktemp("agent"), "zmq", keys) as made:
        yield made


@pytest.fixture
def agent(agent_of_module: Agent) -> Iterator[Agent]:
    """Return the agent of the file; the test must leave no session in it."""
    yield agent_of_module
    agent_of_module.await_no_session()


@pytest.fixture
def new_agent(keys: Path, tmp_path: Path) -> Iterator[Agent]:
    """Run an agent for one test."""
    with running_agent(tmp_path, "zmq", keys) as made:
        yield made


@pytest.fixture
def open_agent(tcp_link: str, tmp_path: Path) -> Iterator[Agent]:
    """Run an agent over the TCP link of the interface's example, without keys."""
    with running_agent(tmp_path, tcp_link, None) as made:
        yield made


@pytest.fixture(scope="session")
def networked_keys(keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the link ``networked``; return the key set of the client for this link."""
    with installed(tmp_path_factory, NAME, MODULE) as folder:
        for file in keys.iterdir():
            copy = folder / file.name
            copy.touch(0o600)
            copy.write_text(file.read_text().replace("zmq", NAME, 1))
        yield folder


@pytest.fixture
def network(
    networked_keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Network]:
    """Run a network that tests control, for Workers with the link ``networked``."""
    with running_network(tmp_path / "network", records=True) as made:
        monkeypatch.setenv(VARIABLE, made.place)
        yield made


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return the parent of the key folders of launchers; all must be removed at the end."""
    made = tmp_path / "folders"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setenv("TMPDIR", str(made))
    yield made
    wait_until(lambda: not list(made.glob("pto-launcher-*")))
