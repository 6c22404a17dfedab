"""The data that the parts of the reference engine share: tables and instructions."""

from __future__ import annotations

from pto_core.hierarchy.states import Transitions
from pto_devkit.engine.configuration import Configuration
from pto_devkit.engine.events import Hazards
from pto_devkit.engine.instructions import Instruction
from pto_devkit.engine.reference.children import Children
from pto_devkit.engine.reference.heap import HeapRing
from pto_devkit.engine.reference.queues import Queues
from pto_devkit.engine.reference.regions import RegionIndex
from pto_devkit.engine.reference.scopes import Scopes
from pto_devkit.engine.reference.slots import Slots


class Core:
    """The state of an engine. After a run, only the children and the rings keep their state."""

    def __init__(self, configuration: Configuration, transitions: Transitions) -> None:
        self.configuration = configuration
        self.slots = Slots(transitions)
        self.children = Children(configuration.children)
        self.rings = [HeapRing(*pair) for pair in enumerate(configuration.rings)]
        self.scopes = Scopes()
        self.queues = Queues()
        self.instructions: list[Instruction] = []
        self.freed_rings: set[int] = set()
        """The rings in which the current event freed memory."""
        self.is_running = False
        """Whether a run is open: from its start to the end of its last task."""
        self.restart(Hazards.RAW)

    def restart(self, hazards: Hazards) -> None:
        """Clear the data of the previous run."""
        self.hazards = hazards
        self.regions = RegionIndex()
        self.is_ending = False
        self.cancelled: int | None = None
        """The cause of the cancellation; None before a cancellation."""
        self.tasks = 0
        """The number of tasks submitted in this run."""
        self.key_count = 0
        """The number of keys assigned to OUTPUT tensors of size 0."""
        self.conservative_edges = 0
        self.roots: dict[int, int] = {}
        """The tasks that failed in this run, even consumed ones; they are the roots of poison."""
        self.failed: list[tuple[int, int]] = []
        self.poisoned: list[tuple[int, int]] = []
        for ring in self.rings:
            ring.restart()
