"""`pto plugins`, `pto config` and `pto doctor`."""

from __future__ import annotations

import json
import os
import re

import pytest

from pto_core.cli import card, doctor
from pto_core.cli.doctor import examine_compilers, examine_python, examine_system
from pto_core.config import load_core
from pto_core.errors import BackendUnavailableError

CARD = """def check_card(self, device, options):
        from pto_core.interfaces import CardStage
        return [CardStage("device", "fake device", f"card {device}")]

    def health"""
UNHEALTHY = ("Health(ok=True)", "Health(False, 'this machine has no card', 'install a card')")
FIELDS = {
    "reach",
    "family",
    "name",
    "aliases",
    "distribution",
    "version",
    "capabilities",
    "healthy",
    "reason",
    "fix",
    "label",
}


def by_name(listed):
    return {entry["name"]: entry for entry in listed}


def test_plugins_as_json(site, native_library):
    site.backend("red", library=native_library("backend", 0))
    site.backend("sick", UNHEALTHY)
    site.backend("broken", ("class Fake:", "import no_such_module\nclass Fake:"))
    site.backend("old", ("= API_VERSION", "= API_VERSION + 1"))
    site.observer("idle", "")
    site.install("fake-many", {"pto.runtimes": "many = fake_many:x\nmore = fake_many:x"}, "2.5")
    result = site.pto("plugins", "--json")
    assert (result.returncode, result.stderr) == (0, "")
    listed = by_name(json.loads(result.stdout))
    assert all(set(entry) == FIELDS for entry in listed.values())
    assert listed["shm"]["reach"] == "local"
    assert listed["red"] == {
        "family": "backend",
        "reach": None,
        "name": "red",
        "aliases": [],
        "distribution": "fake-red",
        "version": "1.0",
        "capabilities": ["threads"],
        "healthy": True,
        "reason": "",
        "fix": "",
        "label": "",
    }
    assert (listed["many"]["aliases"], listed["many"]["version"]) == (["more"], "2.5")
    reasons = {name: entry["reason"] for name, entry in listed.items() if not entry["healthy"]}
    assert reasons["sick"] == "this machine has no card"
    assert listed["sick"]["fix"] == "install a card"
    assert "no_such_module" in reasons["broken"]
    assert "version 1 of the plugin interface" in reasons["old"]
    assert "implements no hook" in reasons["idle"]
    assert "fake_many" in reasons["many"]


def test_plugins_as_lines(site, native_library):
    site.backend("red", library=native_library("backend", 0))
    site.backend("sick", UNHEALTHY)
    lines = site.pto("plugins").stdout.splitlines()
    (red,) = [line for line in lines if re.match(r"backend +red ", line)]
    assert re.split(" {2,}", red) == [
        "backend",
        "red",
        "-",
        "fake-red 1.0",
        "threads",
        "healthy",
    ]
    (sick,) = [line for line in lines if re.match(r"backend +sick ", line)]
    assert sick.endswith("not usable")
    assert "backend sick: this machine has no card. To fix it: install a card" in lines


@pytest.mark.parametrize("command", ["plugins", "doctor", "config"])
@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(site, command, columns):
    result = site.pto(command, env={**os.environ, "COLUMNS": str(columns)})
    lines = result.stdout.splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= columns
    assert all(line == line.rstrip() for line in lines)


@pytest.fixture
def chosen(site, tmp_path):
    site.backend("red")
    site.runtime("graph")
    (tmp_path / "pto.toml").write_text('backend = "red"\nruntime = "graph"\n')
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PTO") and k != "CXX"}
    return {"cwd": tmp_path, "env": {**environ, "PTO_RED_LEVEL": "5"}}


def test_config_as_json(site, chosen):
    chosen["env"]["PTO_RED_LEVL"] = "1"
    result = site.pto("config", "--set", "device=3", "--json", **chosen)
    assert result.returncode == 0
    shown = json.loads(result.stdout)
    settings = shown["settings"]
    assert settings["backend"] == {"value": "red", "origin": "pto.toml:1"}
    assert settings["device"] == {"value": 3, "origin": "--set"}
    assert settings["red.level"] == {"value": 5, "origin": "environment PTO_RED_LEVEL"}
    assert settings["graph.level"] == {"value": 3, "origin": "default"}
    assert len(shown["warnings"]) == 1
    assert "PTO_RED_LEVL" in result.stderr


def test_config_as_lines(site, chosen):
    chosen["env"]["COLUMNS"] = "200"
    lines = site.pto("config", **chosen).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("red.level ")]
    assert re.split(" {2,}", line) == ["red.level", "5", "environment PTO_RED_LEVEL", "a level"]


def test_config_lists_the_variables_that_examples_read(site, chosen):
    chosen["env"] |= {"PA_SEQ_LEN": "33,17"}
    chosen["env"]["COLUMNS"] = "200"
    lines = site.pto("config", **chosen).stdout.splitlines()
    shown = [re.split(" {2,}", line)[:2] for line in lines if line.startswith("PA_")]
    assert shown == [["PA_CASE", "none"], ["PA_SEQ_LEN", "33,17"]]
    variables = json.loads(site.pto("config", "--json", **chosen).stdout)["variables"]
    assert variables == {"PA_CASE": None, "PA_SEQ_LEN": "33,17"}


def test_config_shows_the_origin_of_a_missing_plugin(site, chosen):
    result = site.pto("config", "--set", "runtime=grph", **chosen)
    assert result.returncode == 2
    assert re.search(r"^runtime +grph +--set", result.stdout, re.MULTILINE)
    assert "no runtime called 'grph' is installed; did you mean 'graph'?" in result.stderr


def test_doctor_as_json(site):
    result = site.pto("doctor", "--json")
    shown = json.loads(result.stdout)
    assert result.returncode == (0 if shown["works"] else 5)
    found = by_name(shown["findings"])
    assert {
        "C++ for kernels",
        "bfloat16 in C++ kernels",
        "kernel tile library",
        "Python",
        "Python headers",
        "backend a2a3sim",
        "runtime host_build_graph",
        "torch",
        "numba",
        "cores",
        "futex",
        "memfd",
        "shared memory",
        "locked memory",
        "cache folder",
    } <= set(found)
    assert any(name.startswith("compiler ") and "c++17" in f["detail"] for name, f in found.items())
    assert found["futex"]["ok"]
    for finding in found.values():
        assert bool(finding["fix"]) == (not finding["ok"]), finding


def test_doctor_exits_with_5_when_the_simulator_cannot_run(site, tmp_path):
    result = site.pto("doctor", "--set", "cxx=no-such-compiler", cwd=tmp_path)
    assert result.returncode == 5
    shown = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert any(line.startswith("MISSING configured compiler") for line in shown)
    notes = " ".join(shown).partition(" configured compiler: ")[2]
    assert notes.startswith("'no-such-compiler' (--set) cannot be run")
    assert "set CXX to an installed compiler" in notes


def examined(examine, tmp_path, *settings):
    config = load_core(set_=settings, cwd=tmp_path, environ={"HOME": str(tmp_path)})
    return {finding.name: finding for finding in examine(config)}


def test_doctor_passes_exactly_if_all_requirements_are_met(monkeypatch, capsys):
    class Namespace:
        json = False
        set = ()
        card = False
        report = None

    good = doctor.Finding("a", True, True, "")
    optional = doctor.Finding("b", False, False, "", "fix b")
    missing = doctor.Finding("c", False, True, "", "fix c")
    for findings, code in (([good, optional], 0), ([good, missing], 5)):
        monkeypatch.setattr(doctor, "examine", lambda config, findings=findings: findings)
        assert doctor.run(Namespace()) == code
        assert ("fix c" in capsys.readouterr().out) == (code == 5)


def test_doctor_sees_a_compiler_without_the_standard(tmp_path):
    old = tmp_path / "old-c++"
    old.write_text('#!/bin/sh\ncase "$*" in *c++2*) exit 1;; *) exec g++ "$@";; esac\n')
    old.chmod(0o755)
    found = examined(examine_compilers, tmp_path, f"cxx={old}")
    assert not found[f"compiler {old}"].ok
    assert found[f"compiler {old}"].detail.endswith("c++17, no <stdfloat>")
    required = {name for name, finding in found.items() if finding.required}
    assert required == {"C++ for kernels"}


def test_doctor_checks_the_tile_library(tmp_path):
    name = "kernel tile library"
    assert "not set" in examined(examine_compilers, tmp_path)[name].detail
    wrong = examined(examine_compilers, tmp_path, f"pto_isa_root={tmp_path}")[name]
    assert not wrong.ok
    assert "no folder include/pto" in wrong.detail
    (tmp_path / "include" / "pto").mkdir(parents=True)
    assert examined(examine_compilers, tmp_path, f"pto_isa_root={tmp_path}")[name].ok


def test_doctor_checks_the_cache_folder_and_creates_nothing(tmp_path):
    finding = examined(examine_system, tmp_path, "cache_dir=deep/er")["cache folder"]
    assert finding.ok
    assert not (tmp_path / "deep").exists()
    (tmp_path / "file").write_text("")
    finding = examined(examine_system, tmp_path, "cache_dir=file/x")["cache folder"]
    assert not finding.ok
    assert "file/x (--set) cannot be written" in finding.detail
    assert "PTO_CACHE_DIR" in finding.fix


def test_doctor_shows_the_size_of_the_cache(tmp_path):
    (tmp_path / "artefacts").mkdir()
    (tmp_path / "artefacts" / "one.so").write_bytes(bytes(3 * 2**20))
    finding = examined(examine_system, tmp_path, "cache_dir=.", "cache_limit_bytes=16M")[
        "cache folder"
    ]
    assert "1 artefacts of 3 MiB, at most 16 MiB (cache_limit_bytes); " in finding.detail
    finding = examined(examine_system, tmp_path, "cache_dir=.", "cache_limit_bytes=0")[
        "cache folder"
    ]
    assert "3 MiB, no limit; " in finding.detail


def test_doctor_names_each_missing_distribution(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "inspect_all", list)
    found = examined(examine_python, tmp_path)
    for what, required, distribution in (
        ("backend a2a3sim", True, "ptorun-backend-sim"),
        ("runtime host_build_graph", True, "ptorun-runtime-hbg"),
        ("transport shm", False, "ptorun-transport-shm"),
    ):
        assert (found[what].ok, found[what].required) == (False, required)
        assert f"pip install --no-index --find-links DIR {distribution}" in found[what].fix


def test_doctor_tries_the_card_of_the_chosen_backend(site):
    site.backend("red", ("def health", CARD))
    result = site.pto("doctor", "--card", "--set", "backend=red", "--set", "device=3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1].split() == ["ok", "device", "fake", "device", "card", "3"]
    assert result.stdout.splitlines()[-1] == "the fake device works"
    shown = json.loads(site.pto("doctor", "--card", "--json", "--set", "backend=red").stdout)
    assert (shown["backend"], shown["works"]) == ("red", True)


def test_doctor_without_a_backend_for_cards_names_the_installation(monkeypatch):
    monkeypatch.setattr("pto_core.plugins.installed", lambda family: [])
    with pytest.raises(BackendUnavailableError, match="--find-links DIR ptorun-backend-a2a3"):
        card.check_card((), None, as_json=True)
