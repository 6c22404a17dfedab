"""The plugin without CANN, with link stubs, and with the fake driver."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from native_builds import NativeBuild

from pto_backend_a2a3 import plugin
from pto_backend_a2a3.card_check import check_card
from pto_core.config import load_with_plugins
from pto_core.errors import (
    BackendUnavailableError,
    CapacityError,
    DeviceLostError,
    LoadError,
    PtoError,
    UnsupportedError,
    UsageError,
)
from pto_core.interfaces import API_VERSION, KINDS, Backend, CardBackend, CardStage
from pto_core.plugins import load_backend

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]
PTO = Path(sys.executable).with_name("pto")


@pytest.fixture(scope="session")
def vendor(native_build: NativeBuild) -> Path:
    """Return the folder with one folder of vendor libraries for each kind."""
    folder: Path = native_build(PACKAGE) / "tests" / "fake_driver"
    return folder


@pytest.fixture(scope="session")
def libraries(native_build: NativeBuild) -> Path:
    """Return the folder of the libraries for the device process."""
    folder: Path = native_build(PACKAGE) / "native" / "device"
    return folder


def fake_driver(libraries: Path, silicon: str) -> str:
    """Return settings of the fake driver, which then starts the device process."""
    process = libraries.parents[1] / "tests" / "device_process" / "device_process"
    folder = libraries / "installed"
    return f"memory_mib=64,process={process},libraries={folder},silicon={silicon}"


@pytest.fixture
def without_cann(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Search an empty folder, so that an installed CANN is not found."""
    monkeypatch.setenv("PTO_A2A3_LIBRARY_FOLDER", str(tmp_path))


def pto(*arguments: str) -> subprocess.CompletedProcess[str]:
    wide = os.environ | {"COLUMNS": "400"}  # so that tables fold no text
    return subprocess.run([PTO, *arguments], env=wide, capture_output=True, text=True, check=False)


def check(folder: Path, *settings: str) -> list[CardStage]:
    return check_card(f"folder={folder}", *settings, timeout_s=60)


def test_the_plugin_conforms_to_backend() -> None:
    assert isinstance(plugin, Backend)
    assert isinstance(plugin, CardBackend)
    assert plugin.api_version == API_VERSION
    metadata = tomllib.loads((PACKAGE / "pyproject.toml").read_text())
    assert metadata["project"]["entry-points"]["pto.backends"] == {
        plugin.name: "pto_backend_a2a3:plugin"
    }


def test_only_the_fake_driver_has_recipes_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PTO_A2A3_FAKE", raising=False)
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.setenv(variable, "/nonexistent")
    for kind in ("aic", "aiv"):
        with pytest.raises(BackendUnavailableError, match="the compiler bin/ccec"):
            plugin.build_recipe(kind)
    for kind in ("orchestration", "runtime"):
        recipe = plugin.build_recipe(kind)
        assert recipe is not None
        assert recipe.compilers[-1].startswith("aarch64-linux-gnu-g++")
    with pytest.raises(BackendUnavailableError, match="the compiler bin/ccec"):
        plugin.device_libraries({})
    assert plugin.device_libraries({"images": "/folder"}) == ()
    with pytest.raises(ValueError, match="expected one of aic"):
        plugin.build_recipe("no such kind")
    monkeypatch.setenv("PTO_A2A3_FAKE", "1")
    assert all(plugin.build_recipe(kind) for kind in KINDS)


@pytest.mark.parametrize(
    ("variable", "advice"),
    [
        ("PTO_A2A3_LIBRARY_FOLDER", "Correct a2a3.library_folder (PTO_A2A3_LIBRARY_FOLDER)"),
        ("LD_LIBRARY_PATH", "Install the CANN toolkit; then source its set_env.sh"),
    ],
)
def test_without_cann_a_run_states_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, advice: str
) -> None:
    monkeypatch.delenv("PTO_A2A3_LIBRARY_FOLDER", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    result = pto("run", str(ROOT / "examples" / "01_vector"), "-p", "a2a3")
    assert result.returncode == BackendUnavailableError.exit_code == 5
    assert "libacl_rt.so of the CANN toolkit cannot be loaded" in result.stderr
    assert advice in result.stderr
    assert "this search reads PTO_A2A3_LIBRARY_FOLDER, PTO_A2A3_CANN_VERSION" in result.stderr
    assert "pass" not in result.stdout.lower()


def test_without_cann_the_doctor_fails_only_if_the_card_is_chosen(without_cann: None) -> None:
    result = pto("doctor", "--set", "backend=a2a3")
    assert result.returncode == 5
    (line,) = [line for line in result.stdout.splitlines() if "backend a2a3 " in line][:1]
    assert line.startswith("MISSING")
    assert "backend a2a3: the library libacl_rt.so of the CANN toolkit cannot be" in result.stdout
    assert result.stdout.splitlines()[-1] == "backend a2a3 cannot run here: see MISSING"
    result = pto("doctor", "--set", "backend=a2a3sim")
    (line,) = [line for line in result.stdout.splitlines() if "backend a2a3 " in line][:1]
    assert line.startswith("optional")


def test_link_stubs_are_refused_with_their_path(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_A2A3_LIBRARY_FOLDER", str(vendor / "stubs"))
    with pytest.raises(BackendUnavailableError, match="100039") as caught:
        load_backend("a2a3")
    assert str(vendor / "stubs" / "libacl_rt.so") in caught.value.reason


def test_the_fake_driver_is_never_taken_for_a_card(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(vendor / "fake"))
    with pytest.raises(BackendUnavailableError, match="is the fake driver of this plugin's tests"):
        load_backend("a2a3")
    (stage,) = check(vendor / "fake")
    assert isinstance(stage.error, LoadError)


def test_the_setting_of_the_fake_driver_refuses_other_libraries(vendor: Path) -> None:
    (stage,) = check(vendor / "stubs", "fake=1")
    assert "a2a3.fake is set, but libacl_rt.so is not the fake driver" in str(stage.error)


def test_all_stages_of_the_check_pass_on_the_fake_driver(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", "memory_mib=64,version=8.3.RC1")
    stages = check(vendor / "fake", "fake=1")
    assert [stage.name for stage in stages] == ["libraries", "device", "copy", "registers"]
    assert [stage.error for stage in stages] == [None] * 4
    assert {stage.label for stage in stages} == {"fake device"}
    assert stages[0].found.startswith("CANN 8.3 in /")
    assert stages[0].found.endswith("/libacl_rt.so")
    assert stages[1].found.startswith("Ascend910B3, 24 blocks, ")
    assert stages[1].found.endswith(" of 64 MiB free")
    assert stages[3].found == (
        "registers at 0x200000000000, flags of cores at 0x210000000000, "
        "clusters 0x1fffff7, AICPU 0xfc"
    )


def test_the_check_goes_on_without_an_answer_about_clusters(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", "memory_mib=64,clusters=0")
    stage = check(vendor / "fake", "fake=1")[-1]
    assert (stage.name, stage.error) == ("registers", None)
    assert "clusters unknown" in stage.found


def test_a_task_runs_in_the_device_process(
    vendor: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", fake_driver(libraries, "blocks=2 seed=7 duplicates=1"))
    stages = check(vendor / "fake", "fake=1", f"images={libraries}")
    assert [stage.error for stage in stages] == [None] * len(stages)
    names = ["registers", "dispatcher", "handshake", "task", "close"]
    assert [stage.name for stage in stages[3:]] == names
    assert {stage.label for stage in stages} == {"fake device"}
    assert "2 blocks" in stages[1].found
    assert re.search(r"process \d+ of ELF machine (62|183)", stages[4].found)
    assert "one task on a vector core wrote 4000 bytes" in stages[6].found


def test_a_core_that_does_not_answer_is_a_lost_device(
    vendor: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", fake_driver(libraries, "blocks=1 dead_core=2"))
    stage = check(vendor / "fake", "fake=1", f"images={libraries}")[-1]
    assert stage.name == "handshake"
    assert isinstance(stage.error, DeviceLostError)
    assert "core 1 of 3" in str(stage.error)


def test_settings_name_the_bootstrap_of_an_unknown_release(
    vendor: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", f"version=10.0,{fake_driver(libraries, 'blocks=1')}")
    settings = ["fake=1", f"images={libraries}"]
    stage = check(vendor / "fake", *settings)[-1]
    assert isinstance(stage.error, UnsupportedError)
    names = {
        "a2a3.bootstrap_operation": "AST_DYN_AICPU",
        "a2a3.bootstrap_kernel": "DynTileFwkKernelServerInit",
        "a2a3.bootstrap_library": "libaicpu_extend_kernels.so",
    }
    native = {option.key: option.native for option in plugin.options()}
    for key, name in names.items():
        assert key in str(stage.error)
        settings.append(f"{native[key]}={name}")
    stage = check(vendor / "fake", *settings)[-1]
    assert (stage.name, stage.error) == ("close", None)
    stage = check(vendor / "fake", *settings, "bootstrap_kernel=NoSuchKernel")[-1]
    assert stage.name == "dispatcher"
    assert stage.error.vendor_function == "aclrtStreamQuery"
    assert stage.error.vendor_code == 507018


def test_the_doctor_builds_the_code_of_the_device_and_runs_an_example(
    vendor: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch, shared_cache: Path
) -> None:
    driver = fake_driver(libraries, "blocks=1").replace("memory_mib=64", "memory_mib=512")
    for name, value in (
        ("PTO_FAKE_DRIVER", driver),
        ("PTO_CACHE_DIR", str(shared_cache)),
        ("PTO_A2A3_FAKE", "1"),
        ("PTO_A2A3_POOL_MIB", "256"),
        ("PTO_A2A3_LIBRARY_FOLDER", str(vendor / "fake")),
    ):
        monkeypatch.setenv(name, value)
    result = pto("doctor", "--card")
    assert result.returncode == 0, result.stdout + result.stderr
    *rows, verdict = result.stdout.splitlines()[1:]
    stages = ("build", "dispatcher", "handshake", "task", "close", "example")
    assert [row.split()[:4] for row in rows[4:]] == [
        ["ok", name, "fake", "device"] for name in stages
    ]
    assert "1 task of host_build_graph wrote 4000 bytes" in rows[-1]
    assert verdict == "the fake device works"


@pytest.mark.parametrize(
    ("driver", "settings", "name", "kind", "message"),
    [
        ("devices=1", ("device=1",), "device", UsageError, "invalid device number"),
        ("soc=Ascend310P3", (), "device", UnsupportedError, "the chip Ascend310P3 is not"),
        ("streams=1", (), "device", CapacityError, "207008"),
        ("memory_mib=1", (), "copy", CapacityError, "aclrtMalloc failed with code 207001"),
        ("version=unreleased", (), "libraries", LoadError, "Set PTO_A2A3_CANN_VERSION"),
        ("register_bytes=0", (), "registers", LoadError, "which is impossible"),
        ("devices=1", ("kernel_timeout_s=50",), "device", UsageError, "a2a3.synchronise_timeout_s"),
        ("devices=1", ("images=/nowhere",), "dispatcher", LoadError, "a2a3.device_folder"),
    ],
)
def test_a_failed_stage_has_the_error_of_its_cause_and_is_the_last(
    vendor: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: str,
    settings: tuple[str, ...],
    name: str,
    kind: type[PtoError],
    message: str,
) -> None:
    monkeypatch.setenv("PTO_FAKE_DRIVER", driver)
    stage = check(vendor / "fake", "fake=1", *settings)[-1]
    assert stage.name == name
    assert type(stage.error) is kind or isinstance(stage.error, kind)
    assert message in str(stage.error)


def test_the_check_sees_the_visible_devices(
    vendor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,3")
    settings = {"a2a3.library_folder": vendor / "fake", "a2a3.fake": True}
    options = load_with_plugins({"backend": "a2a3", **settings}).native_options_of(plugin)
    assert plugin.check_card(1, options)[-1].name == "build"
    assert isinstance(plugin.check_card(2, options)[-1].error, UsageError)


def test_a_crash_and_a_hang_of_the_check_are_failures_of_their_stage(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage,) = check(vendor / "fake", "no=1")
    assert "the setting no=1 is unknown or invalid" in str(stage.error)
    stage = check_card(f"folder={vendor / 'fake'}", "fake=1", timeout_s=0)[-1]
    assert f"in the stage {stage.name!r}: it did not end within 0 s" in str(stage.error)
    monkeypatch.setenv("PTO_FAKE_DRIVER", "no=1")
    (stage,) = check(vendor / "fake", "fake=1")
    assert "it ended with signal SIGABRT; it wrote: PTO_FAKE_DRIVER" in str(stage.error)


def test_the_doctor_states_that_the_toolkit_is_missing(
    vendor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    report = tmp_path / "report.json"
    words = ("doctor", "--report", str(report), "--set", "a2a3.fake=true")
    folder = f"a2a3.library_folder={vendor / 'fake'}"
    result = pto(*words, "--set", folder)
    assert result.returncode == 5
    rows = [line.split() for line in result.stdout.splitlines()[1:6]]
    assert [row[:2] for row in rows] == [
        *(["ok", name] for name in ("libraries", "device", "copy", "registers")),
        ["FAILED", "build"],
    ]
    assert all(row[2:4] == ["fake", "device"] for row in rows)
    assert "install the CANN toolkit and source its set_env.sh" in result.stdout
    written = json.loads(report.read_text())
    assert (written["backend"], written["works"]) == ("a2a3", False)
    assert {stage["label"] for stage in written["stages"]} == {"fake device"}
    assert written["stages"][-1]["error"] == "BackendUnavailableError"
    assert written["settings"]["a2a3.fake"] == "True"
    assert "a2a3.pool_mib" not in written["settings"]
    assert set(written["environment"]) <= {
        *("ASCEND_HOME_PATH", "ASCEND_RT_VISIBLE_DEVICES", "ASCEND_TOOLKIT_HOME"),
        "LD_LIBRARY_PATH",
    }


def test_the_doctor_reports_a_missing_cann_and_a_report_that_cannot_be_written(
    without_cann: None, tmp_path: Path
) -> None:
    result = pto("doctor", "--card")
    assert result.returncode == 5
    assert result.stdout.splitlines()[1].startswith("FAILED  libraries")
    assert "libacl_rt.so of the CANN toolkit cannot be loaded" in result.stdout
    result = pto("doctor", "--report", str(tmp_path / "no" / "file"))
    assert result.returncode == UsageError.exit_code
    assert "No such file or directory; choose another file" in result.stderr


FORK = """
import ctypes, sys
import pto_core
from pto_core.errors import PtoError
for method in ("fork", "spawn"):
    ctypes.CDLL(sys.argv[1])
    worker = pto_core.Worker(level=3, device_ids=[0], backend="a2a3", start_method=method)
    try:
        worker.init()
    except PtoError as error:
        print(type(error).__name__, error)
"""


def test_a_process_that_has_loaded_cann_forks_no_chip(vendor: Path, tmp_path: Path) -> None:
    library = tmp_path / "libacl_rt.so"
    shutil.copy(vendor / "fake" / library.name, library)
    result = subprocess.run(
        [sys.executable, "-c", FORK, library], capture_output=True, text=True, check=True
    )
    forked, spawned = result.stdout.splitlines()[:2]
    assert forked.startswith(f"UsageError this process has loaded {library}, which does")
    assert "use start_method='spawn'" in forked
    assert "forked process" not in spawned


def test_this_process_loads_no_library_of_the_vendor(without_cann: None) -> None:
    plugin.health()
    maps = Path(f"/proc/{os.getpid()}/maps").read_text()
    assert "libacl_rt" not in maps
    assert "libpto_fake_driver" not in maps
