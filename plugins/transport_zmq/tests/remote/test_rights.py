"""The rights of the clients of an agent, and their quotas."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pto_core.cli.main import main
from pto_core.config import load_core
from pto_core.errors import CapacityError, RightsError, UsageError
from pto_core.kernels import CallConfig
from pto_transport_zmq.remote import agent
from pto_transport_zmq.remote.agent_messages import Open
from pto_transport_zmq.remote.blueprint import Blueprint, CallableRecord
from pto_transport_zmq.remote.callables import ImportedFunction, PortableChip, SerialisedFunction
from pto_transport_zmq.remote.frames import FrameGateway
from pto_transport_zmq.remote.gateway import GatewayPlan
from pto_transport_zmq.remote.messages import MessageKind, TaskFrame, pack_task, pack_tasks
from pto_transport_zmq.remote.requests import Configure, Deliver, Forget
from pto_transport_zmq.remote.rights import Needs, Rights, read_rights
from pto_transport_zmq.remote.wire import Message


@pytest.mark.parametrize("name", Needs._fields)
def test_a_quota_limits_the_sum_of_all_sessions(name: str) -> None:
    used, wanted = Needs(**{name: 3}), Needs(**{name: 2})
    Rights("ann", "k", **{name: 5}).check_quotas(wanted, used)
    Rights("ann", "k", **{name: None}).check_quotas(wanted, used)
    with pytest.raises(CapacityError, match=r"client ann would have 5 .* its limit is 4") as info:
        Rights("ann", "k", **{name: 4}).check_quotas(wanted, used)
    assert (info.value.name, info.value.value, info.value.limit) == (name, 5, 4)


def test_programs_and_folders_of_the_host_need_a_right() -> None:
    config = load_core({"cxx": "/tmp/evil", "jobs": 2})
    with pytest.raises(RightsError, match="the setting cxx chooses a program or folder"):
        Rights("ann", "k").check_settings(config)
    with pytest.raises(RightsError, match="the setting cache_dir"):
        Rights("ann", "k").check_settings(load_core({"cache_dir": "/tmp/other"}))
    with pytest.raises(RightsError, match="the setting pto_isa_root"):
        Rights("ann", "k").check_settings(load_core({"pto_isa_root": "/tmp/other"}))
    Rights("ann", "k", host_settings=True).check_settings(config)
    own = load_core(environ={"CXX": "clang++", "HOME": "/"})  # settings of the host itself
    Rights("ann", "k").check_settings(own)


def test_the_folder_of_output_files_needs_a_right() -> None:
    chosen = Configure(1, CallConfig(enable_dump_tensor=3, output_prefix="out/it").pack())
    assert Rights("ann", "k", host_settings=True).permitted_request(chosen) == chosen
    with pytest.raises(RightsError, match=r"'out/it' chooses a folder .* host_settings = true"):
        Rights("ann", "k").permitted_request(chosen)
    counted = Configure(1, CallConfig(enable_pmu=1).pack())  # writes no file
    assert Rights("ann", "k").permitted_request(counted) == counted


def test_a_list_of_clients_has_defaults_and_sizes(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(
        '[[client]]\nname = "ann"\nkey = "k"\nmemory = "2G"\nadmin = true\n'
        '[[client]]\nname = "bob"\nkey = "l"\nmemory = 4096\n'
    )
    ann, bob = read_rights(file)
    assert (ann.memory, ann.admin, ann.host_settings) == (2**31, True, False)
    assert (bob.memory, bob.tasks, bob.processes, bob.admin) == (4096, None, 1024, False)
    assert (bob.python_code, bob.native_code, bob.host_copies, bob.imports) == (*[True] * 3, None)
    assert Rights.of_owner("own", "k").admin
    assert Rights.of_owner("own", "k").host_settings


def test_a_key_of_two_clients_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text("".join(f'[[client]]\nname = "{one}"\nkey = "k"\n' for one in ("ann", "bob")))
    with pytest.raises(UsageError, match="has the key k for ann and for bob; keep one table"):
        read_rights(file)


def test_a_list_of_clients_needs_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[[client]]\nname = "ann"\nkey = "k"\n')
    monkeypatch.setattr(agent, "serve", lambda *_, **__: None)
    assert main(["agent", "serve", "--allow", str(file)]) == 2
    assert "--allow needs --keys" in capsys.readouterr().err


def test_callables_of_all_levels_need_a_right() -> None:
    record = CallableRecord(bytes(16), bytes(32), 0, 0, "add", [SerialisedFunction(b"code")])
    inner = Blueprint(3, [], 1, {}, bytes(16), [record], [])
    outer = Blueprint(4, [], 0, {}, bytes(16), [], [inner])
    assert Rights("ann", "k").permitted(outer) == outer
    with pytest.raises(RightsError, match="add has Python code"):
        Rights("ann", "k", python_code=False).permitted(outer)


def plan_of(python: tuple[int, int]) -> GatewayPlan:
    """Return the plan of a session whose client has this version of Python."""
    blueprint = Blueprint(3, [], 0, {}, bytes(16), [], [])
    request = Open(bytes(16), 1, "a", "1", python, 1, blueprint, [], [], (0, 0), 1, 1.0, 1, 1, 1)
    return GatewayPlan(request, Rights("a", "k"), "zmq", "tcp://127.0.0.1:0", None, insecure=True)


@pytest.mark.parametrize("is_of_chip", [False, True])
def test_code_of_another_python_version_is_refused_while_a_session_runs(is_of_chip: bool) -> None:
    same, other = (plan_of(python) for python in (sys.version_info[:2], (2, 7)))
    code = SerialisedFunction(b"not unpickled")
    imported = ImportedFunction("json:loads", None)
    delivery = PortableChip([], code, [], "x") if is_of_chip else code
    request = Deliver(bytes(32), [imported, delivery])
    assert same.permitted_request(request) == request
    with pytest.raises(UsageError, match=r"the parent's host has Python 2\.7, this host"):
        other.permitted_request(request)
    by_name = Deliver(bytes(32), [imported])
    assert other.permitted_request(by_name) == by_name
    assert other.permitted_request(Forget(bytes(32))) == Forget(bytes(32))


def test_more_tasks_in_flight_than_declared_are_refused() -> None:
    gateway = FrameGateway(None, None, None, None, None, None, tasks=3)
    frames = [pack_task(TaskFrame(one, one, 0, 0, 0, bytes(32), b"")) for one in range(1, 5)]
    gateway.handle(Message(0, MessageKind.TASKS, 1, pack_tasks(1, 3, frames[:3])))
    with pytest.raises(CapacityError, match="has 4 tasks in flight; it declared at most 3"):
        gateway.handle(Message(0, MessageKind.TASKS, 2, pack_tasks(4, 1, frames[3:])))
