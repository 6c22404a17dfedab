"""What the parts of the reference engine share: the tables, and the instructions of this event."""

from __future__ import annotations

from pto_core.hierarchy.engine.configuration import Configuration
from pto_core.hierarchy.engine.events import Hazards
from pto_core.hierarchy.engine.instructions import Instruction
from pto_core.hierarchy.engine.reference.children import Children
from pto_core.hierarchy.engine.reference.heap import HeapRing
from pto_core.hierarchy.engine.reference.queues import Queues
from pto_core.hierarchy.engine.reference.regions import RegionIndex
from pto_core.hierarchy.engine.reference.scopes import Scopes
from pto_core.hierarchy.engine.reference.slots import Slots
from pto_core.hierarchy.states import Transitions


class Core:
    """Everything that an engine knows. A run that is over leaves only children and rings."""

    def __init__(self, configuration: Configuration, transitions: Transitions) -> None:
        self.configuration = configuration
        self.slots = Slots(transitions)
        self.children = Children(configuration.children)
        self.rings = [HeapRing(*pair) for pair in enumerate(configuration.rings)]
        self.scopes = Scopes()
        self.queues = Queues()
        self.instructions: list[Instruction] = []
        self.freed_rings: set[int] = set()
        """Whose tail has moved in this event."""
        self.is_running = False
        """Between the beginning of a run and its last task's end."""
        self.restart(Hazards.RAW)

    def restart(self, hazards: Hazards) -> None:
        """Forget the run before."""
        self.hazards = hazards
        self.regions = RegionIndex()
        self.is_ending = False
        self.cancelled: int | None = None
        """The cause, once the run is cancelled."""
        self.tasks = 0
        """Submitted in this run."""
        self.key_count = 0
        """Keys given to OUTPUT tensors of size 0 without an address."""
        self.conservative_edges = 0
        self.roots: dict[int, int] = {}
        """Tasks that have failed in this run, also when consumed: what the poison came from."""
        self.failed: list[tuple[int, int]] = []
        self.poisoned: list[tuple[int, int]] = []
        for ring in self.rings:
            ring.restart()
