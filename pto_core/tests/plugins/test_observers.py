"""Each hook reaches its observers; a hook that would never be called is refused."""

from __future__ import annotations

import copy
import importlib
import shutil
import sys
from pathlib import Path

import pytest

from pto_core import plugins
from pto_core.errors import PluginUnavailableError
from pto_core.interfaces import CaseInfo, RunInfo

RUN = RunInfo("a2a3sim", "host_build_graph", 0, "graph", 3, 1)
CASE = CaseInfo("small", Path("case"), "a2a3sim", "host_build_graph", 0)
START = "from pto_core.plugins.hooks import hookimpl\ncalls = []\n"


def observer_of(hook: str, arguments: str) -> str:
    return START + f"@hookimpl\ndef {hook}({arguments}):\n    calls.append(({arguments},))\n"


def notified(site, hook: str, arguments: str, **values):
    """Install an observer of one hook, notify it, and return its arguments."""
    site.observer("witness", observer_of(hook, arguments))
    observers = plugins.load_observers()
    assert observers.problems == ()
    observers.notify(hook, **values)
    return sys.modules["fake_witness"].calls


def test_hook_pto_run_started(site):
    assert notified(site, "pto_run_started", "info", info=RUN) == [(RUN,)]


def test_hook_pto_run_finished(site):
    error = ValueError("x")
    values = {"info": RUN, "report": None, "error": error}
    assert notified(site, "pto_run_finished", "info, report, error", **values) == [
        (RUN, None, error)
    ]


def test_hook_pto_case_started(site):
    assert notified(site, "pto_case_started", "info", info=CASE) == [(CASE,)]


def test_hook_pto_case_finished(site):
    values = {"info": CASE, "exit_code": 1, "seconds": 0.5}
    assert notified(site, "pto_case_finished", "info, exit_code, seconds", **values) == [
        (CASE, 1, 0.5)
    ]


def test_a_hook_may_declare_fewer_arguments(site):
    values = {"info": CASE, "exit_code": 1, "seconds": 0.5}
    assert notified(site, "pto_case_finished", "exit_code", **values) == [(1,)]


def test_without_observers_nothing_is_imported(site):
    program = (
        "from pto_core.plugins import load_observers; o = load_observers();"
        "o.notify('pto_run_started', info=None); print('pluggy' in sys.modules, o.problems)"
    )
    assert site.run(program).stdout == "False ()\n"


def problem(site, source: str) -> str:
    """Install a broken observer beside a working one; return the report about the broken one."""
    site.observer("witness", observer_of("pto_run_started", "info"))
    site.observer("broken", source)
    observers = plugins.load_observers()
    (error,) = observers.problems
    observers.notify("pto_run_started", info=RUN)
    assert sys.modules["fake_witness"].calls == [(RUN,)], "a broken observer stopped another"
    listed = {i.record.name: i.health for i in plugins.inspect_all()}
    assert listed["witness"].ok
    assert not listed["broken"].ok
    assert listed["broken"].reason == error.message
    assert (error.plugin, error.distribution, error.version) == ("broken", "fake-broken", "1.0")
    return error.message


def test_a_misspelt_hook_is_refused(site):
    shown = problem(site, START + "@hookimpl\ndef pto_run_startd(info): ...\n")
    assert "observer 'broken' (fake-broken 1.0" in shown
    assert "'pto_run_startd' that does not exist; did you mean 'pto_run_started'?" in shown


def test_a_marked_function_of_another_name_is_refused(site):
    shown = problem(site, START + "@hookimpl\ndef run_started(info): ...\n")
    assert "'run_started' that does not exist" in shown


def test_a_hook_without_its_mark_is_refused(site):
    shown = problem(site, "def pto_run_started(info): ...\n")
    assert "does not mark its hook 'pto_run_started' with @hookimpl" in shown


def test_a_hook_with_an_argument_that_does_not_exist_is_refused(site):
    shown = problem(site, START + "@hookimpl\ndef pto_run_started(inform): ...\n")
    assert "pto_run_started" in shown
    assert "inform" in shown


def test_an_observer_without_hooks_is_refused(site):
    assert "implements no hook; hooks: pto_run_started" in problem(site, "import pto_core\n")


def test_an_observer_that_cannot_be_imported_is_reported(site):
    assert "RuntimeError: no" in problem(site, "raise RuntimeError('no')\n")


def test_an_observer_that_raises_is_named_and_stops_no_other(site, capfd):
    site.observer("witness", observer_of("pto_run_started", "info"))
    site.observer(
        "angry", START + "@hookimpl\ndef pto_run_started(info):\n    raise OSError('full')\n"
    )
    plugins.load_observers().notify("pto_run_started", info=RUN)
    assert sys.modules["fake_witness"].calls == [(RUN,)]
    (line,) = capfd.readouterr().err.splitlines()
    for part in ("observer failed", "observer:angry", "pto_run_started", "OSError: full"):
        assert part in line


def test_a_blocked_observer_gets_no_event(site):
    site.observer("witness", observer_of("pto_run_started", "info"))
    observers = plugins.load_observers()
    manager = plugins.manager()
    calls = sys.modules["fake_witness"].calls
    assert manager.get_plugin("observer:witness") is sys.modules["fake_witness"]
    manager.set_blocked("observer:witness")
    try:
        assert ("observer:witness", None) in manager.list_name_plugin()
        observers.notify("pto_run_started", info=RUN)
        plugins.load_observers().notify("pto_run_started", info=RUN)
        assert calls == []
    finally:
        manager.unblock("observer:witness")
    plugins.load_observers().notify("pto_run_started", info=RUN)
    assert calls == [(RUN,)]


def test_an_observer_that_is_not_installed_any_more_gets_no_event(site):
    site.observer("witness", observer_of("pto_run_started", "info"))
    plugins.load_observers()
    calls = sys.modules["fake_witness"].calls
    shutil.rmtree(site.folder / "fake_witness-1.0.dist-info")
    importlib.invalidate_caches()
    plugins.load_observers().notify("pto_run_started", info=RUN)
    assert calls == []


def test_the_manager_has_every_loaded_plugin(site):
    site.launcher("green")
    before = plugins.load_launcher("green")
    manager = plugins.manager()
    assert manager.get_plugin("launcher:green") is before
    site.launcher("violet")
    assert not manager.has_plugin("launcher:violet")
    assert plugins.load_launcher("violet") is manager.get_plugin("launcher:violet")


def test_a_program_may_block_or_replace_a_plugin(site):
    site.launcher("green")
    installed = plugins.load_launcher("green")
    manager = plugins.manager()
    manager.unregister(name="launcher:green")
    mine = copy.copy(installed)
    manager.register(mine, "launcher:green")
    try:
        assert plugins.load_launcher("green") is mine
    finally:
        manager.unregister(name="launcher:green")
    assert plugins.load_launcher("green") is installed
    manager.set_blocked("launcher:green")
    try:
        with pytest.raises(PluginUnavailableError, match="launcher 'green' is blocked"):
            plugins.load_launcher("green")
    finally:
        manager.unblock("launcher:green")
