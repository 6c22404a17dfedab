"""Engines and placement policies that a plugin provides and a Worker selects by name."""

from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pto_core import Out, Worker, task
from pto_core.errors import (
    InternalError,
    PluginError,
    PtoError,
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
    capabilities = frozenset({"policy"})

    def health(self):
        return Health(ok=True)

    def policy(self):
        return Turns()

plugin = Plugin()
"""
ENGINE = """
from pto_core.hierarchy.engine import NativeEngine, ReferenceEngine
from pto_core.interfaces import API_VERSION, Health

class Counting(ReferenceEngine):
    made = []

    def __init__(self, configuration, *, policy):
        super().__init__(configuration, policy=policy)
        self.configuration = configuration
        self.events = []
        self.made.append(self)

    def handle(self, event):
        self.events.append(type(event).__name__)
        return super().handle(event)

class Plugin:
    name = "counting"
    api_version = API_VERSION
    capabilities = frozenset({"engine"})

    def health(self):
        return Health(ok=True)

    def engine(self, configuration, policy):
        return Counting(configuration, policy=policy)

plugin = Plugin()
"""

Install = Callable[[str, str], object]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with one scheduler, and return its module."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(name: str, source: str) -> object:
        module = f"fake_scheduler_{name}"
        (tmp_path / f"{module}.py").write_text(source)
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[pto.schedulers]\n{name} = {module}:plugin\n")
        importlib.invalidate_caches()
        sys.modules.pop(module, None)
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


def test_a_policy_is_chosen_by_name(make, install) -> None:
    module = install("turns", POLICY)
    worker = make(num_sub_workers=CHILDREN, policy="turns")
    assert len(set(pids_of(worker))) == CHILDREN
    (policy,) = module.Turns.made
    assert policy.calls == 30


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


def test_an_engine_is_chosen_by_name(install) -> None:
    module = install("counting", ENGINE)
    with Worker(3, num_sub_workers=2, engine="counting", on_worker_death="reroute") as worker:
        assert len(pids_of(worker)) == 30
        (engine,) = module.Counting.made
        assert engine.configuration.repeats_lost
        assert [child.window for child in engine.configuration.children] == [64, 64]
    assert engine.events.count("Submit") == 30
    assert engine.events.count("RunBegin") == engine.events.count("RunEnd") == 1


def test_an_engine_of_a_plugin_gets_the_policy(install) -> None:
    counting, turns = install("counting", ENGINE), install("turns", POLICY)
    with Worker(3, num_sub_workers=2, engine="counting", policy="turns") as worker:
        pids_of(worker)
    assert counting.Counting.made[0].events.count("Submit") == 30
    assert turns.Turns.made[0].calls == 30


def test_a_plugin_may_return_a_native_engine_with_a_policy_of_its_own(install) -> None:
    source = ENGINE.replace(
        "return Counting(configuration, policy=policy)",
        "return NativeEngine(configuration, policy=lambda them, _: them[-1][0])",
    )
    install("counting", source)
    with Worker(3, num_sub_workers=2, engine="counting") as worker:
        first, second = worker.shared_array((2, 1), "int64")
        with worker.session() as s:
            s.submit(write_pid, first, worker=1)
            s.submit(write_pid, second)
        assert first[0] == second[0]


def test_one_native_engine_serves_one_worker(install) -> None:
    source = ENGINE.replace(
        "return Counting(configuration, policy=policy)",
        "self.kept = getattr(self, 'kept', None) or NativeEngine(configuration)\n"
        "        return self.kept",
    )
    module = install("counting", source)
    with Worker(3, num_sub_workers=1, engine="counting") as worker:
        pids_of(worker)
        with pytest.raises(UsageError, match="belongs to a Worker; create another one"):
            module.plugin.kept.is_quiescent()
        with (
            pytest.raises(UsageError, match="belongs to a Worker; create another one"),
            Worker(3, num_sub_workers=1, engine="counting") as other,
        ):
            other.init()


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ('["text"]', InternalError, "object of the type str, which is not an instruction"),
        ("[][0]", IndexError, "out of range"),
    ],
)
def test_a_faulty_engine_ends_its_run_and_the_worker_closes(install, fault, error, message) -> None:
    install(
        "counting",
        ENGINE.replace(
            "return super().handle(event)",
            f"""
        if len(self.events) == 6:
            return {fault}
        return super().handle(event)""",
        ),
    )
    worker = Worker(3, num_sub_workers=1, engine="counting")
    try:
        with pytest.raises((error, PtoError)) as caught:
            pids_of(worker)
        shown: BaseException | None = caught.value
        while shown is not None and not (isinstance(shown, error) and message in str(shown)):
            shown = shown.__cause__ or shown.__context__
        assert shown is not None
    finally:
        worker.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "refrence"}, "no scheduler called 'refrence' .* did you mean 'reference'"),
        ({"policy": "fastest"}, "no scheduler called 'fastest' .*: least_loaded, native"),
    ],
)
def test_an_unknown_name_is_refused_when_the_worker_is_made(settings, message) -> None:
    with pytest.raises(UnknownPluginError, match=message):
        Worker(3, num_sub_workers=1, **settings)


@pytest.mark.parametrize("settings", [{"engine": "least_loaded"}, {"policy": "native"}])
def test_a_scheduler_of_the_other_kind_is_refused(settings) -> None:
    with pytest.raises(UsageError, match=r"pass it as (policy='least_loaded'|engine='native')"):
        Worker(3, num_sub_workers=1, **settings)


def test_the_core_provides_its_schedulers_as_plugins() -> None:
    from pto_core import plugins

    own = {each.name: each for each in plugins.schedulers() if each.distribution == "ptorun-core"}
    assert own.keys() == {"native", "reference", "least_loaded", "near_inputs"}
    for name in own:
        is_engine = name in ("native", "reference")
        load = plugins.load_engine if is_engine else plugins.load_policy
        assert type(pickle.loads(pickle.dumps(load(name)))) is type(load(name))


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
