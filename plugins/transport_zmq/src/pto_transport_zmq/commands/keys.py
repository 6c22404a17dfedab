"""Create the keys with which a Worker and the agents of other hosts identify each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from pto_core.config import load_core
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.keys import new_keys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="write a new key set")
    new.add_argument("folder", type=Path, help="the folder of the key set, such as ./keys")


def run(namespace: argparse.Namespace) -> int:
    """Write a key set, and print which files each machine needs."""
    folder: Path = namespace.folder
    transport = load_core({}, namespace.set)["remote_transport"]
    new_keys(folder, load_links(transport))
    print(
        f"wrote a key set for the transport {transport!r} to {folder}\n"
        f"  each host with an agent needs   {folder}/agent.secret, agent.public, client.public\n"
        f"  the machine of the Worker needs {folder}/client.secret, client.public, agent.public\n"
        "copy the secret files over a trusted connection only, such as scp"
    )
    return 0
