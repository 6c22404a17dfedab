"""The plugin object: the search for CANN, the library, the recipes, and the settings."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pto_backend_a2a3.card_check import check_card, check_example
from pto_backend_a2a3.device_images import build_images
from pto_backend_a2a3.options import DEVICE_FOLDER, FAKE, FOLDER, OF_CHECK, OPTIONS, VERSION
from pto_backend_a2a3.recipes import find_libraries, find_recipe, uses_fake_driver
from pto_core.config import process_environment
from pto_core.errors import PtoError
from pto_core.interfaces import API_VERSION, BuildRecipe, CardStage, DeviceLibrary, Health, Option

_LIBRARY = Path(__file__).with_name("libpto_backend_a2a3.so")
_SEARCH_S = 20.0
_CARD_S = 120.0  # the first selection of a device by a process can take seconds
_VENDOR_LIBRARIES = ("libacl_rt.so", "libascendcl.so", "libascend_hal.so")
_ADVICE = (
    f"this search reads {FOLDER.variable}, {VERSION.variable} and {FAKE.variable} from the "
    "environment, not from --set, pto.toml or settings; `-p a2a3sim` runs the same cases in "
    "simulation"
)


class Ascend:
    """An Ascend A2 or A3 device, through CANN. Cases have run on the fake driver only."""

    name = "a2a3"
    api_version = API_VERSION
    capabilities = frozenset({"threads", "streams", "dump"})
    dlpack_device_type = 12  # kDLExtDev, which torch_npu uses
    stream_attribute = "npu_stream"  # of torch_npu.npu.Stream

    def health(self) -> Health:
        """Load CANN in a child process; report what is missing."""
        environment = process_environment()
        settings = [
            f"{option.native}={environment[option.variable]}"
            for option in (FOLDER, VERSION)
            if environment.get(option.variable)
        ]
        fake = f"fake={int(uses_fake_driver())}"
        stage = check_card("only=libraries", fake, *settings, timeout_s=_SEARCH_S)[-1]
        if stage.error is not None:
            return Health(False, stage.error.message, _ADVICE)
        return Health(True, label=stage.label if uses_fake_driver() else "")

    def library(self) -> Path:
        """Return the path of the native library that exports ``pto_backend_entry``."""
        return _LIBRARY

    def build_recipe(self, kind: str) -> BuildRecipe | None:
        """Return the recipe for the device: native for the fake driver."""
        return find_recipe(kind)

    def device_libraries(self, options: Mapping[str, str]) -> Sequence[DeviceLibrary]:
        """List the libraries of the device, or none if a setting names their folder."""
        return () if DEVICE_FOLDER.native in options else find_libraries()

    def options(self) -> tuple[Option, ...]:
        """List the settings of the backend."""
        return OPTIONS

    def loaded_libraries(self) -> tuple[str, ...]:
        """List the libraries of CANN and its driver that this process has loaded, as paths."""
        maps = Path("/proc/self/maps").read_text()
        paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines()}
        return tuple(sorted(path for path in paths if Path(path).name in _VENDOR_LIBRARIES))

    def check_card(self, device: int, options: Mapping[str, str]) -> list[CardStage]:
        """Try CANN and the card, build the libraries of the device, try them, run an example."""
        known = {option.native for option in OF_CHECK}
        settings = [f"device={device}"]
        settings += [f"{key}={value}" for key, value in options.items() if key in known]
        stages = check_card(*settings, timeout_s=_CARD_S)
        if stages[-1].error is None and DEVICE_FOLDER.native not in options:
            stages = _check_with_built_libraries(stages, settings)
        if stages[-1].error is None:
            stages.append(check_example(device, options, timeout_s=_CARD_S))
        return stages


def _check_with_built_libraries(
    stages: list[CardStage], settings: Sequence[str]
) -> list[CardStage]:
    """Build the libraries, and repeat the check with them. ``stages``: before the build."""
    label = stages[-1].label
    with tempfile.TemporaryDirectory() as folder:
        try:
            names = build_images(Path(folder))
        except PtoError as error:
            return [*stages, CardStage("build", label, error=error)]
        images = f"{DEVICE_FOLDER.native}={folder}"
        checked = check_card(*settings, images, timeout_s=_CARD_S)
    build = CardStage("build", label, f"code for the device: {', '.join(names)}")
    return [*checked[: len(stages)], build, *checked[len(stages) :]]


plugin = Ascend()
