"""Serve Workers of other hosts on this host, or send a request to a running agent."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pto_core import log
from pto_core.cli.show import show_json, show_table
from pto_core.config import load_core
from pto_core.errors import UsageError
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.agent_messages import (
    Done,
    Drain,
    GetStatus,
    Refused,
    Request,
    Status,
    Stop,
)
from pto_transport_zmq.remote.keys import AGENT, CLIENT, key_pair, public_key
from pto_transport_zmq.remote.relay import AgentAddress, Contact
from pto_transport_zmq.remote.rights import Rights, read_rights
from pto_transport_zmq.remote.values import failure_from_record

_ANSWER_S = 10.0
_COLUMNS = ("session", "client", "epoch", "processes", "age")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    serve = actions.add_parser("serve", help="run an agent until it is stopped")
    serve.add_argument(
        "--bind",
        default="tcp://127.0.0.1:7700",
        help="address to listen on, such as tcp://0.0.0.0:7700",
    )
    serve.add_argument("--allow", type=Path, help="file with the permitted clients (TOML)")
    serve.add_argument(
        "--client",
        metavar="KEY",
        help="public key of the only permitted client: the agent makes its own keys, prints its "
        "public key, and ends at the end of its standard input",
    )
    serve.add_argument(
        "--insecure",
        action="store_true",
        help="permit any address without keys, not only loopback addresses",
    )
    _add_keys(serve)
    for name, text in (
        ("status", "show an agent and its sessions"),
        ("drain", "make an agent refuse new sessions"),
        ("stop", "end an agent and its sessions"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("address", help="address of the agent, such as tcp://host1:7700")
        _add_keys(action)
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_keys(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=Path, help="folder of the key set (`pto keys new`)")


def run(namespace: argparse.Namespace) -> int:
    """Serve until the agent is stopped, or send one request to a running agent."""
    config = load_core({}, namespace.set)
    if namespace.action == "serve":
        if namespace.client is None and config.origin("log_level") == "default":
            log.configure(config.replace({"log_level": "info"}))  # shows each session
        _serve(config["remote_transport"], namespace)
        return 0
    contact = Contact.of(
        AgentAddress(
            namespace.address, namespace.keys, config["remote_transport"], config["remote_insecure"]
        )
    )
    requests: dict[str, Request] = {"status": GetStatus(), "drain": Drain(), "stop": Stop()}
    reply = contact.ask(requests[namespace.action], _ANSWER_S)
    if isinstance(reply, Refused):
        failure = failure_from_record(reply.failure)
        raise failure.exception or UsageError(failure.message)
    if isinstance(reply, Status):
        _show(reply, as_json=namespace.json)
    elif isinstance(reply, Done):
        print("done")
    return 0


def _serve(transport: str, namespace: argparse.Namespace) -> None:
    from pto_transport_zmq.remote.agent import serve

    if namespace.client is not None:
        _serve_one_client(transport, namespace)
        return
    if namespace.insecure and namespace.keys is None:
        print("pto agent: without keys, every program that reaches this address can run code here")
    if namespace.allow is not None and namespace.keys is None:
        raise UsageError(
            "--allow needs --keys, because an agent knows its clients by their keys; add --keys "
            "with the folder of the agent's key set, or remove --allow",
            name="--allow",
            value=str(namespace.allow),
        )
    credentials: KeyPair | None = None
    clients: Sequence[Rights] = [Rights.of_owner("anyone", "")]
    if namespace.keys is not None:
        credentials = key_pair(namespace.keys, AGENT, transport)
        clients = [Rights.of_owner("own key set", public_key(namespace.keys, CLIENT, transport))]
    if namespace.allow is not None:
        clients = read_rights(namespace.allow)

    def started(address: str) -> None:
        print(f"pto agent: serving at {address}", flush=True)

    serve(
        transport,
        namespace.bind,
        credentials,
        clients,
        started,
        insecure=namespace.insecure,
    )


def _serve_one_client(transport: str, namespace: argparse.Namespace) -> None:
    """Serve the client of ``--client``, with a key pair that exists only in this process."""
    from pto_transport_zmq.remote.agent import serve

    for option in ("keys", "allow", "insecure"):
        if getattr(namespace, option):
            raise UsageError(
                f"--client and --{option} exclude each other, because an agent with --client "
                f"makes its own keys for its only client; remove one of them",
                name=f"--{option}",
                value=str(getattr(namespace, option)),
            )
    credentials = load_links(transport).key_pair()

    def started(address: str) -> None:
        print(f"pto agent: serving at {address} with the key {credentials.public}", flush=True)

    serve(
        transport,
        namespace.bind,
        credentials,
        [Rights.of_owner("the client of --client", namespace.client)],
        started,
        insecure=False,
        ends_with_input=True,
    )


def _show(status: Status, *, as_json: bool) -> None:
    if as_json:
        sessions = [
            {
                "session": one.path,
                "client": one.client,
                "epoch": one.epoch,
                "processes": one.processes,
                "age_s": round(one.age_s, 3),
            }
            for one in status.sessions
        ]
        show_json(
            {
                "address": status.address,
                "core_version": status.core_version,
                "is_draining": status.is_draining,
                "sessions": sessions,
            }
        )
        return
    state = "draining" if status.is_draining else "accepting sessions"
    print(f"agent at {status.address}, ptorun-core {status.core_version}, {state}")
    rows = [
        (one.path, one.client, str(one.epoch), str(one.processes), f"{one.age_s:.0f} s")
        for one in status.sessions
    ]
    if rows:
        show_table("sessions", _COLUMNS, rows)
