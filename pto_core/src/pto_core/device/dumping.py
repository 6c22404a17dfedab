"""Switch on the dump of a run: the arrays of its tasks, written to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pto_core.config import Config
from pto_core.config.options import DUMP_LEVELS
from pto_core.errors import UnsupportedError
from pto_core.errors.values import invalid_value
from pto_core.kernels import CallConfig
from pto_core.plugins import insight

if TYPE_CHECKING:
    from pto_insight.dumps.recording import DumpedRun

PREFIX = "dump"
"""The start of the names of files if the configuration of a run has no ``output_prefix``."""


class Dumping:
    """Selects the runs of a device that are dumped. ``can_dump``: whether the backend can do it."""

    def __init__(self, config: Config, *, can_dump: bool) -> None:
        self._config = config
        self._can_dump = can_dump

    def begin(self, config: CallConfig | None, dump: object, run: int) -> DumpedRun | None:
        """Prepare the files of a run; return None if the run is not dumped.

        ``dump``: the argument of ``device.run``. Raises UsageError, and UnsupportedError if the
        backend cannot dump.
        """
        if not isinstance(dump, str | bool):
            raise invalid_value("dump", dump, "pass the selected tasks, such as 'add#3', or True")
        level = 0 if config is None else config.enable_dump_tensor
        if dump is False and not level:
            return None
        if not self._can_dump:
            raise UnsupportedError(
                f"the backend {self._config['backend']!r} cannot dump the arrays of tasks; run the "
                "program on the simulator, with the backend 'a2a3sim'",
                name="dump",
                value=dump,
            )
        selected = dump if isinstance(dump, str) else "" if dump else self._config["dump_select"]
        prefix = (config.output_prefix if config is not None else "") or PREFIX
        return insight.begin_dump(
            Path(f"{prefix}.device{self._config['device']}.run{run}"),
            selected,
            level or len(DUMP_LEVELS),
            self._config,
            run,
        )
