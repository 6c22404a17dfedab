"""Placement policies that a plugin provides and a Worker selects by name."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import textwrap
from collections.abc import Callable

import pytest
from fake_distributions import Site

from pto_core import Out, Worker, task
from pto_core.errors import (
    PluginError,
    UnknownPluginError,
    UsageError,
)
from pto_core.interfaces import orchestrator
from pto_devkit.new import plugin_source

CHILDREN = 3

POLICY = """
from pto_core.interfaces import API_VERSION, Health

class Turns:
    made = []

    def __init__(self):
        self.calls = 0
        self.made.append(self)

    def __call__(self, candidates, preferred):
        self.calls += 1
        return candidates[self.calls % len(candidates)][0]

class Plugin:
    name = "turns"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()

    def health(self):
        return Health(ok=True)

    def policy(self):
        return Turns()

plugin = Plugin()
"""
Install = Callable[[str, str], object]


@pytest.fixture
def install(site: Site) -> Install:
    """Install a distribution with one scheduler, and return its module."""

    def install(name: str, source: str) -> object:
        module = f"fake_scheduler_{name}"
        site.module(module, source)
        site.install(module, {"pto.schedulers": f"{name} = {module}:plugin"})
        return importlib.import_module(module)

    return install


@task
def write_pid(out: Out) -> None:
    out[:] = os.getpid()


def pids_of(worker: Worker, tasks: int = 30) -> list[int]:
    """Run tasks without pins, and return the process of each."""
    found = worker.shared_array((tasks,), "int64")
    with worker.session() as s:
        for index in range(tasks):
            s.submit(write_pid, found[index : index + 1])
    return [int(pid) for pid in found]


def test_a_new_policy_selects_the_children_in_turn(make, install) -> None:
    install("round_robin", plugin_source("scheduler", "round_robin"))
    pids = pids_of(make(num_sub_workers=CHILDREN, policy="round_robin"))
    assert len(set(pids)) == CHILDREN
    assert pids == pids[:CHILDREN] * (len(pids) // CHILDREN)


def test_the_example_of_an_orchestrator_runs() -> None:
    _, _, example = (orchestrator.__doc__ or "").partition("::\n\n")
    exec(textwrap.dedent(example), {})


def test_each_worker_gets_a_policy_of_its_own(make, install) -> None:
    module = install("turns", POLICY)
    for tasks in (4, 9):
        pids_of(make(num_sub_workers=2, policy="turns"), tasks)
    assert [policy.calls for policy in module.Turns.made] == [4, 9]


def test_a_setting_names_the_policy_and_an_argument_wins(make, install, monkeypatch) -> None:
    module = install("turns", POLICY)
    monkeypatch.setenv("PTO_POLICY", "turns")
    pids_of(make(num_sub_workers=2))
    assert module.Turns.made[0].calls == 30
    pids_of(make(num_sub_workers=2, policy=lambda candidates, preferred: candidates[0][0]))
    pids_of(make(num_sub_workers=2, policy="least_loaded"))
    assert len(module.Turns.made) == 1


def test_an_unknown_name_is_refused_when_the_worker_is_made() -> None:
    with pytest.raises(UnknownPluginError, match=r"no scheduler called 'fastest' .*: least_loaded"):
        Worker(3, num_sub_workers=1, policy="fastest")


def test_the_core_provides_its_schedulers_as_plugins() -> None:
    from pto_core import plugins

    own = {
        each.name: each
        for each in plugins.installed("scheduler")
        if each.distribution == "ptorun-core"
    }
    assert own.keys() == {"least_loaded", "near_inputs"}
    for name in own:
        loaded = plugins.load_scheduler(name)
        assert type(pickle.loads(pickle.dumps(loaded))) is type(loaded)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "def pick(self, candidates, preferred, task):\n        raise ValueError(task.callable)",
            "the placement policy of the plugin 'turns' raised ValueError: .*write_pid",
        ),
        (
            "def __call__(self, candidates, preferred):\n        return 99",
            "the placement policy of the plugin 'turns' picked 99",
        ),
    ],
)
def test_an_error_of_a_policy_names_its_plugin(make, install, method: str, message: str) -> None:
    install("turns", POLICY.replace("def __call__(", f"{method}\n\n    def replaced("))
    with pytest.raises(UsageError, match=message):
        pids_of(make(num_sub_workers=2, policy="turns"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("1 // 0", "policy() of the scheduler plugin 'turns' raised ZeroDivisionError"),
        ("3", "policy() of the scheduler plugin 'turns' returned 3"),
    ],
)
def test_a_plugin_without_a_usable_policy_is_named(make, install, made: str, message: str) -> None:
    install("turns", POLICY.replace("return Turns()", f"return {made}"))
    with pytest.raises(PluginError, match=re.escape(message)):
        make(num_sub_workers=2, policy="turns").init()
