"""The argument `hosts` of a Worker, and its settings. No test here starts a process."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pto_core import Hosts, Worker
from pto_core.config import load_core
from pto_core.errors import ConfigError, PluginError, UsageError
from pto_core.worker.hosts import HostRequest
from pto_core.worker.settings import OtherHost, worker_settings
from pto_core.worker.worker_node import WorkerNode
from pto_transport_zmq.remote.blueprint import blueprint_of


def test_arguments_of_hosts_win_over_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Hosts.on().completed(load_core({})) == HostRequest("local", 1, {})
    monkeypatch.setenv("PTO_LAUNCHER", "command")
    monkeypatch.setenv("PTO_HOSTS", "4")
    monkeypatch.setenv("PTO_HOST_RESOURCES", "NPU=2, CPU=0.5")
    settings = load_core({})
    requested = HostRequest("command", 4, {"NPU": 2.0, "CPU": 0.5})
    assert Hosts.on().completed(settings) == requested
    given = Hosts.on("local", 2, {"GPU": 1}).completed(settings)
    assert given == HostRequest("local", 2, {"GPU": 1.0})
    assert Hosts.on(resources={}).completed(settings) == HostRequest("command", 4, {})


@pytest.mark.parametrize("text", ["NPU", "NPU=", "=2", "NPU=-1", "NPU=inf", "NPU=2,,CPU=1"])
def test_wrong_amounts_of_resources_are_refused(text: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("PTO_HOST_RESOURCES", text)
    with pytest.raises(ConfigError, match="amounts of resources, such as NPU=2,CPU=4"):
        load_core({})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num": 0}, "num is 0; pass a number of hosts from 1 to 1024"),
        ({"num": True}, "num is True"),
        ({"num": 1025}, "num is 1025"),
        ({"launcher": 3}, "launcher is 3; pass the name of a launcher"),
        ({"resources": {"NPU": "2"}}, "pass a dict with amounts, such as {'CPU': 2}"),
        ({"resources": {"NPU": -1}}, "pass a dict with amounts"),
        ({"resources": {"NPU": float("nan")}}, "pass a dict with amounts"),
        ({"resources": "NPU=2"}, "resources is 'NPU=2'"),
    ],
)
def test_wrong_arguments_of_hosts_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Hosts.on(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hosts": ["h1"]}, "hosts is ['h1']; pass Hosts.on(\"local\", num=2), or"),
        ({"hosts": Hosts.on(), "host": "tcp://h:1"}, "host was passed with hosts"),
        ({"hosts": Hosts.on(), "keys": "keys"}, "keys was passed with hosts"),
        ({"hosts": Hosts.on(), "policy": min}, "policy of a remote Worker cannot be sent"),
        ({"hosts": Hosts.on(), "config": load_core({})}, "config of a remote Worker cannot be"),
    ],
)
def test_wrong_arguments_of_a_worker_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Worker(level=3, **arguments)


def test_settings_of_launchers_are_not_sent_to_hosts() -> None:
    given = {"host_list": "h1", "host_command": "sh -c {command}", "task_timeout_s": 5}
    host = OtherHost(None, None, (), Hosts.on())
    settings = worker_settings(3, None, None, (), 0, "PROCESS", None, given, host)
    assert blueprint_of(WorkerNode(settings, None)).plain_settings == {"task_timeout_s": 5}


def test_an_unknown_launcher_is_refused_at_once() -> None:
    with pytest.raises(PluginError, match="nowhere"):
        Worker(level=3, hosts=Hosts.on("nowhere"))


def test_a_template_needs_a_parent_of_this_program() -> None:
    template = Worker(level=3, hosts=Hosts.on(num=2))
    with pytest.raises(UsageError, match="is for the hosts of a launcher, as a child of a Worker"):
        template.init()
    above = Worker(level=4)
    assert above.add_worker(template) == 0
    assert above.add_worker(Worker(level=3)) == 2  # behind the two children of the template
