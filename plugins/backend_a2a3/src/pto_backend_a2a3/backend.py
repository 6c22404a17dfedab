"""The plugin object: the search for CANN, and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pto_backend_a2a3.card_check import check_card
from pto_backend_a2a3.options import (
    DEVICE_FOLDER,
    FOLDER,
    LOG_FORMAT,
    LOG_LEVEL,
    OPTIONS,
    VERSION,
)
from pto_core.config.environment import process_environment
from pto_core.errors import UnsupportedError
from pto_core.interfaces import API_VERSION, KINDS, BuildRecipe, CardStage, Health, Option

_SEARCH_S = 20.0
_CARD_S = 120.0  # the first selection of a device by a process can take seconds
_VENDOR_LIBRARIES = ("libacl_rt.so", "libascendcl.so", "libascend_hal.so")
_SIMULATOR = "`-p a2a3sim` runs the same cases in simulation"


class Ascend:
    """An Ascend A2 or A3 device, through CANN. This version runs no cases."""

    name = "a2a3"
    api_version = API_VERSION
    capabilities: frozenset[str] = frozenset()
    dlpack_device_type = 12  # kDLExtDev, which torch_npu uses

    def health(self) -> Health:
        """Load CANN in a child process; report what is missing."""
        environment = process_environment()
        settings = [
            f"{option.native}={environment[option.variable]}"
            for option in (FOLDER, VERSION)
            if environment.get(option.variable)
        ]
        stage = check_card("only=libraries", *settings, timeout_s=_SEARCH_S)[-1]
        if stage.error is not None:
            return Health(False, stage.error.message, _SIMULATOR)
        return Health(
            False,
            f"{stage.found} works, but this version of the plugin has no library for the AICPU, "
            "so it cannot run cases",
            _SIMULATOR,
        )

    def library(self) -> Path:
        """Raise UnsupportedError: this version has no library for runs."""
        raise UnsupportedError(f"backend {self.name!r} cannot run cases yet; {_SIMULATOR}")

    def build_recipe(self, kind: str) -> BuildRecipe | None:
        """Raise UnsupportedError: this version builds no code for a card."""
        if kind not in KINDS:
            raise ValueError(f"the kind of code is {kind!r}; expected one of {', '.join(KINDS)}")
        raise UnsupportedError(f"backend {self.name!r} cannot build code yet; {_SIMULATOR}")

    def options(self) -> tuple[Option, ...]:
        """List the settings of the backend."""
        return OPTIONS

    def loaded_libraries(self) -> tuple[str, ...]:
        """List the libraries of CANN and its driver that this process has loaded, as paths."""
        maps = Path("/proc/self/maps").read_text()
        paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines()}
        return tuple(sorted(path for path in paths if Path(path).name in _VENDOR_LIBRARIES))

    def check_card(self, device: int, options: Mapping[str, str]) -> list[CardStage]:
        """Try CANN and the card; then state the stages that this version lacks."""
        visible = process_environment().get("ASCEND_RT_VISIBLE_DEVICES", "")
        of_runs = {LOG_LEVEL.native, LOG_FORMAT.native}
        settings = [f"{key}={value}" for key, value in options.items() if key not in of_runs]
        settings.append(f"visible={visible}")
        stages = check_card(f"device={device}", *settings, timeout_s=_CARD_S)
        if stages[-1].error is None:
            stages.append(_missing_stage(stages[-1].label, DEVICE_FOLDER.native in options))
        return stages


def _missing_stage(label: str, has_device_libraries: bool) -> CardStage:
    if has_device_libraries:
        error = UnsupportedError("this version of the plugin cannot run an example on a card")
        return CardStage("example", label, error=error)
    error = UnsupportedError(
        "this version of the plugin is installed without libraries for the device, so it cannot "
        f"try the dispatcher, the handshake with a core, a task and an example; set "
        f"{DEVICE_FOLDER.key} to a folder that has them"
    )
    return CardStage("dispatcher", label, error=error)


plugin = Ascend()
