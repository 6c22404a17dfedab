"""Requests that an agent refuses, and its answers to `pto agent`."""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fake_distributions import pto_here
from remote_hosts import START_S, Agent, allow_list, counted, running_agent, task_args, wait_until

from pto_core import RemoteCallable, Worker
from pto_core._worker import CallableKind, CallableSpace
from pto_core.errors import (
    CapacityError,
    ChildDiedError,
    ChildStartError,
    ControlError,
    LinkError,
    ProtocolError,
    PtoError,
    RightsError,
    UsageError,
)
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote import remote_child
from pto_transport_zmq.remote.agent_messages import (
    AwaitEnd,
    Drain,
    Ended,
    EndSession,
    Open,
    Opened,
    Refused,
    Reply,
    Request,
    Stop,
    build,
)
from pto_transport_zmq.remote.blueprint import Blueprint, CallableRecord
from pto_transport_zmq.remote.callables import SerialisedFunction
from pto_transport_zmq.remote.keys import public_key, write_client_keys
from pto_transport_zmq.remote.relay import AgentAddress, Contact
from pto_transport_zmq.remote.rights import read_rights
from pto_transport_zmq.remote.values import failure_from_record

EMPTY = Blueprint(3, [], 1, {}, bytes(16), [], [])
HERE = (sys.version_info.major, sys.version_info.minor)


def ask(agent: Agent, request: Request, timeout_s: float = 10) -> Reply:
    contact = Contact.of(AgentAddress(agent.address, str(agent.keys), agent.link, False))
    return contact.ask(request, timeout_s)


def start(agent: Agent, **changed: Any) -> Reply:
    """Return the reply to a start of a Worker with a function by code."""
    by_code = CallableRecord(
        bytes(16),
        bytes(32),
        int(CallableKind.PYTHON_SERIALISED),
        int(CallableSpace.LOCAL_PYTHON),
        "graph",
        [SerialisedFunction(b"not unpickled")],
    )
    members: dict[str, Any] = {
        "session": bytes(16),
        "epoch": 1,
        "path": "L4/host0",
        "core_version": build(),
        "python": HERE,
        "lease_ns": 3_000_000_000,
        "blueprint": Blueprint(3, [], 1, {}, bytes(16), [by_code], []),
        "callables": [],
        "ranges": [],
        "buffers": (2**44, 4096),
        "queue_bytes": 4096,
        "start_timeout_s": 10.0,
        "memory": 2**30 - 4096,
        "buffer_memory": 4096,
        "tasks": 64,
    }
    return ask(agent, Open(**{**members, **changed}))


def refusal(agent: Agent, **changed: Any) -> PtoError:
    """Return the error with which an agent refuses a changed request for a start."""
    return error_in(start(agent, **changed))


def error_in(reply: Reply) -> PtoError:
    assert isinstance(reply, Refused)
    error = failure_from_record(reply.failure).exception
    assert isinstance(error, PtoError)
    return error


def test_another_version_of_the_core_is_refused(agent: Agent) -> None:
    error = refusal(agent, core_version="0.0.1")
    assert isinstance(error, UsageError)
    assert "has ptorun-core 0.0.1, this host" in str(error)


def test_a_request_of_another_build_that_cannot_be_read_is_answered(agent: Agent) -> None:
    contact = Contact.of(AgentAddress(agent.address, str(agent.keys), agent.link, False))
    link = contact.dial()
    sent = [b"PTOA12345678" + b"9.9.9+c0ffee", b"another schema"]
    wait_until(lambda: contact.plugin.wait([link], 0.1) and link.send(sent))
    message = None
    while message is None:
        assert contact.plugin.wait([link], START_S).ends
        message = link.receive()
    assert message.parts == [b"PTOA12345678" + build().encode()]
    link.close()


def test_an_agent_logs_sessions_refused_keys_and_its_end(keys: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path, "zmq", keys) as agent:
        start(agent, blueprint=EMPTY)
        ask(agent, EndSession(bytes(16), 1))
        contact = Contact.of(AgentAddress(agent.address, str(keys), "zmq", False))
        stranger = contact.plugin.key_pair()
        link = contact.plugin.dial(agent.address, stranger, contact.server_key)
        wait_until(lambda: "does not allow the key" in link.problem)
        link.close()
        agent.main().terminate()
        wait_until(lambda: agent.process.poll() == 0)
        text = agent.log.read_text()
    for words in (
        "session started [pto_transport_zmq.remote.agent] client='own key set' epoch=1 processes=",
        "session ended [pto_transport_zmq.remote.agent] client='own key set' epoch=1 seconds=",
        "refused key [pto_transport_zmq.link.ends] count=1",
        "agent is ending [pto_transport_zmq.remote.agent] reason=SIGTERM sessions=0",
    ):
        assert words in text


def test_code_of_another_python_version_is_refused(agent: Agent) -> None:
    error = refusal(agent, python=(2, 7))
    assert isinstance(error, UsageError)
    assert "has Python 2.7, this host" in str(error)
    assert agent.processes() == []


def test_code_of_another_python_version_is_refused_after_the_start(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_child, "sys", SimpleNamespace(version_info=(2, 7)))
    with Worker(level=4) as worker:
        there = worker.add_worker(agent.worker(num_sub_workers=0))
        worker.init()
        with pytest.raises(ControlError, match=r"has Python 2\.7, this host") as info:
            worker.register(lambda orch, args, config: None)
        assert isinstance(info.value.__cause__, UsageError)
        worker.register(RemoteCallable("json:loads"), workers=[there])


def test_modules_that_cannot_be_written_are_refused(agent: Agent) -> None:
    wrong = {"a": b"", "a/b.py": b""}
    error = refusal(agent, session=b"m" * 16, blueprint=EMPTY, modules=wrong)
    assert isinstance(error, ProtocolError)
    assert "'a' is both a file and a folder" in str(error)
    agent.await_no_session()


def test_a_late_start_of_an_older_epoch_changes_nothing(new_agent: Agent) -> None:
    assert isinstance(start(new_agent, epoch=2, blueprint=EMPTY), Opened)
    started = new_agent.processes()
    assert "epoch 1 of the session is over" in str(refusal(new_agent, epoch=1, blueprint=EMPTY))
    assert isinstance(start(new_agent, epoch=2, blueprint=EMPTY), Opened)
    assert new_agent.processes() == started
    assert isinstance(ask(new_agent, EndSession(bytes(16), 2)), Ended)
    assert "epoch 2 of the session is over" in str(refusal(new_agent, epoch=2, blueprint=EMPTY))
    assert new_agent.processes() == []


# Invariant: An agent confirms the end of a session only if it has started the session: the gateway
# of an earlier agent may still run.
def test_an_agent_confirms_the_end_of_sessions_that_it_has_started(new_agent: Agent) -> None:
    name = bytes(16)
    for request in (EndSession(name, 2), AwaitEnd(name, 2)):
        with pytest.raises(LinkError, match="did not answer within 1 s"):
            ask(new_agent, request, 1)
    assert isinstance(start(new_agent, epoch=2, blueprint=EMPTY), Opened)
    assert isinstance(ask(new_agent, AwaitEnd(name, 1)), Ended)
    assert isinstance(ask(new_agent, EndSession(name, 2)), Ended)
    assert new_agent.processes() == []
    assert isinstance(ask(new_agent, AwaitEnd(name, 2)), Ended)
    with pytest.raises(LinkError, match="did not answer within 1 s"):
        ask(new_agent, AwaitEnd(name, 3), 1)


def test_rights_of_a_client_are_checked_before_anything_is_read(keys: Path, tmp_path: Path) -> None:
    file = allow_list(tmp_path, keys, python_code=False, processes=4, memory="1G", tasks=64)
    with running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent:
        error = refusal(agent)
        assert isinstance(error, RightsError)
        assert "does not accept from client ann; set python_code = true in the" in str(error)
        error = refusal(agent, blueprint=Blueprint(3, [], 9, {}, bytes(16), [], []))
        assert isinstance(error, CapacityError)
        assert "client ann would have 11 processes on this host; its limit is 4" in str(error)
        error = refusal(agent, blueprint=EMPTY, memory=2**30 - 4095)
        assert isinstance(error, CapacityError)
        assert (
            "1073741825 bytes of shadow memory and buffers on this host; its limit is 1073741824"
            in (str(error))
        )
        error = refusal(agent, blueprint=EMPTY, tasks=65)
        assert isinstance(error, CapacityError)
        assert "65 tasks in flight on this host; its limit is 64" in str(error)
        error = refusal(agent, blueprint=EMPTY, modules={"pack.py": b""})
        assert isinstance(error, RightsError)
        assert "pack has Python code, which this host does not accept from client ann" in str(error)
        assert agent.processes() == []


def test_functions_come_from_permitted_modules_only(keys: Path, tmp_path: Path) -> None:
    file = allow_list(tmp_path, keys, python_code=False, imports=["shutil"])

    with running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent:
        with Worker(level=4) as worker:
            there = worker.add_worker(agent.worker(num_sub_workers=1))
            worker.register(RemoteCallable("shutil:os.abort"), workers=[there])
            with pytest.raises(ChildStartError, match=r"RightsError: shutil:os\.abort leads "):
                worker.init()
        with Worker(level=4) as worker:
            there = worker.add_worker(agent.worker(num_sub_workers=1))
            worker.register(RemoteCallable("shutil:rmtree"), workers=[there])
            worker.init()
            worker.register(RemoteCallable("shutil:copyfile"), workers=[there])
            for name in ("os.abort", "fnmatch.filter"):
                with pytest.raises(ControlError, match="an attribute that is the module") as late:
                    worker.register(RemoteCallable(f"shutil:{name}"), workers=[there])
                assert isinstance(late.value.__cause__, RightsError)
            with pytest.raises(ControlError, match=r"is in the module .*json") as late:
                worker.register(RemoteCallable("json:loads"), workers=[there])
            assert isinstance(late.value.__cause__, RightsError)


def test_only_an_administrator_administrates_and_sees_the_sessions_of_others(
    keys: Path, tmp_path: Path
) -> None:
    """Other clients choose no programs of the host either."""
    link = load_links("zmq")
    folders = {name: tmp_path / name for name in ("bob", "eve")}
    file = allow_list(tmp_path, keys)
    for name, folder in folders.items():
        pair = link.key_pair()
        write_client_keys(folder, "zmq", pair, public_key(keys, "agent", "zmq"))
        admin = "true" if name == "eve" else "false"
        with file.open("a") as clients:
            clients.write(f'[[client]]\nname = "{name}"\nkey = "{pair.public}"\nadmin = {admin}\n')
    with running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent:
        for request, action in ((Drain(), "drain"), (Stop(), "stop")):
            error = error_in(ask(agent, request))
            assert isinstance(error, RightsError)
            assert (
                f"client ann may not {action} this agent; set admin = true in the agent's"
                in str(error)
            )
        with Worker(level=4) as worker:
            worker.add_worker(agent.worker(cxx="/tmp/evil"))
            with pytest.raises(ChildStartError, match=r"cxx chooses a program .* host_settings"):
                worker.init()
        with Worker(level=4) as worker:
            worker.add_worker(agent.worker(num_sub_workers=0))
            worker.init()
            seen = {
                name: json.loads(pto_agent(replace(agent, keys=folder), "status", "--json"))
                for name, folder in {"ann": keys, **folders}.items()
            }
    clients = {name: [one["client"] for one in state["sessions"]] for name, state in seen.items()}
    assert clients == {"ann": ["ann"], "bob": [], "eve": ["ann"]}


def test_memory_above_the_quota_ends_the_session(keys: Path, tmp_path: Path) -> None:
    file = allow_list(tmp_path, keys, memory="8M", tasks=4)
    with (
        running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent,
        Worker(level=4, child_window=4) as worker,
    ):
        step = worker.register(lambda orch, args, config: args.tensor(0).fill(1))
        long_step = worker.register(lambda orch, args, config: time.sleep(60))
        worker.add_worker(agent.worker(num_sub_workers=0, remote_memory_limit="8M"))
        parts = worker.shared_array((20, 1 << 20), "uint8")

        def small(orch: Any, args: Any, config: Any) -> None:
            for part in parts:  # together the parts exceed the quota
                orch.submit_next_level(step, task_args(part), worker=0)

        def large(orch: Any, args: Any, config: Any) -> None:
            orch.submit_next_level(long_step, task_args(parts), worker=0)

        worker.run(small)
        assert (parts == 1).all()
        with pytest.raises(ChildDiedError, match=r"shadow memory; it declared at most 8388608"):
            worker.run(large)


def test_buffers_count_as_memory_of_the_client(keys: Path, tmp_path: Path) -> None:
    file = allow_list(tmp_path, keys, memory="8M")
    with running_agent(tmp_path, "zmq", keys, "--allow", str(file)) as agent:

        def error_of(nbytes: int, **settings: Any) -> BaseException | None:
            with Worker(level=4) as worker:
                remote = agent.worker(num_sub_workers=0, remote_memory_limit="6M", **settings)
                with pytest.raises((ControlError, ChildStartError)) as info:
                    worker.remote_malloc(nbytes, worker.add_worker(remote))
            return info.value.__cause__

        error = error_of(1)
        assert isinstance(error, CapacityError)
        assert "declared at most 0; free buffers, or set a larger remote_buffer_limit" in str(error)
        error = error_of(2**21 + 1, remote_buffer_limit="2M")
        assert isinstance(error, CapacityError)
        error = error_of(1, remote_buffer_limit="3M")
        assert isinstance(error, CapacityError)
        assert "set a smaller remote_memory_limit or remote_buffer_limit" in str(error)
        with Worker(level=4) as worker:
            remote = agent.worker(remote_memory_limit="6M", remote_buffer_limit="2M")
            worker.remote_malloc(2**21, worker.add_worker(remote))


@pytest.mark.parametrize(
    "text", ["", "[[client]]\nname = 1\nkey = 'k'", "[[client]]\nname = 'a'", "[client", "a = 1"]
)
def test_an_invalid_list_of_clients_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(text)
    with pytest.raises(PtoError, match=r"clients\.toml cannot be used"):
        read_rights(file)


def own_address() -> str:
    """Return an address of this machine outside its loopback interface."""
    addresses = (one for found in psutil.net_if_addrs().values() for one in found)
    outer = [
        one.address
        for one in addresses
        if one.family == socket.AF_INET and not one.address.startswith("127.")
    ]
    assert outer, "this machine has no network interface"
    return outer[0]


def test_hosts_without_keys_are_used_only_if_both_sides_permit_it(tmp_path: Path) -> None:
    bind = ("--bind", f"tcp://{own_address()}:0")
    with running_agent(tmp_path, "zmq", None, *bind, "--insecure") as agent:
        refused = Worker(level=4)
        refused.add_worker(agent.worker())
        with refused, pytest.raises(ChildStartError, match="remote_insecure"):
            refused.init()
        with Worker(level=4) as worker:
            worker.add_worker(agent.worker(remote_insecure=True))
            worker.init()
            assert agent.processes()
        assert "every program that reaches this address can run code" in agent.log.read_text()


def pto_agent(agent: Agent, *arguments: str) -> str:
    done = pto_here("agent", *arguments, agent.address, "--keys", agent.keys)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_shows_sessions_drains_and_stops(keys: Path, tmp_path: Path) -> None:
    with running_agent(tmp_path, "zmq", keys) as agent, Worker(level=4) as worker:
        worker.add_worker(agent.worker())
        counted(worker)
        worker.init()
        text = pto_agent(agent, "status")
        assert "accepting sessions" in text
        assert "L4/host0" in text
        assert pto_agent(agent, "drain") == "done\n"
        state = json.loads(pto_agent(agent, "status", "--json"))
        assert state["is_draining"] is True
        (session,) = state["sessions"]
        age_s = session.pop("age_s")
        assert 0 < age_s < 60
        assert session == {
            "session": "L4/host0",
            "client": "own key set",
            "epoch": 1,
            "processes": 4,
        }
        other = Worker(level=4)
        other.add_worker(agent.worker())
        with other, pytest.raises(ChildStartError, match="asked to drain"):
            other.init()
        assert pto_agent(agent, "stop") == "done\n"
        wait_until(lambda: agent.process.poll() == 0)
