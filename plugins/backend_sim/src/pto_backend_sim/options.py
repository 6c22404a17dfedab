"""Settings of the simulator, listed by :meth:`Simulator.options`."""

from __future__ import annotations

from pto_core.interfaces import Option, parse

_LEAST_MEMORY_BYTES = 2**20
_MOST_MEMORY_BYTES = 2**42


def _memory_bytes(text: str) -> int:
    value: int = parse.size_bytes(text)
    if not _LEAST_MEMORY_BYTES <= value <= _MOST_MEMORY_BYTES:
        raise ValueError("a size in bytes from 1M to 4T")
    return value


OPTIONS = (
    Option(
        key="sim.mode",
        default="threads",
        parse=parse.choice("threads", "deterministic"),
        help="threads: cores share a pool of threads; deterministic: one thread, seeded order",
        native="mode",
    ),
    Option(
        key="sim.seed",
        default=0,
        parse=parse.integer(minimum=0, maximum=2**64 - 1),
        help="order of events in deterministic mode; the same seed gives the same trace hash",
        native="seed",
    ),
    Option(
        key="sim.check",
        default=False,
        parse=parse.boolean,
        help="check for wrong addresses, writes outside buffers and use after free",
        native="check",
    ),
    Option(
        key="sim.gaps",
        default=None,
        parse=parse.optional(parse.boolean),
        help="leave unused memory before and after each buffer; none means the value of measure",
        native="gaps",
    ),
    Option(
        key="sim.memory_bytes",
        default=8 * 2**30,
        parse=_memory_bytes,
        help="device memory; only touched pages use host memory",
        native="memory_bytes",
    ),
    Option(
        key="sim.workers",
        default=0,
        parse=parse.integer(minimum=0, maximum=62),
        help="threads that run schedulers and cores; 0 means one per usable processor",
        native="workers",
    ),
    Option(
        key="sim.blocks",
        default=24,
        parse=parse.integer(minimum=1, maximum=24),
        help="blocks of the device, each of one AIC and two AIV cores",
        native="blocks",
    ),
    Option(
        key="sim.timing",
        default=False,
        parse=parse.boolean,
        help="measure how long each core is busy; costs two clock readings per task",
        native="timing",
    ),
    Option(
        key="sim.activity_fd",
        default=None,
        parse=parse.optional(parse.integer(minimum=0)),
        help="descriptor of the activity page; none makes one, which `pto top` reads",
        native="activity_fd",
    ),
    Option(
        key="sim.log_level",
        default=None,
        parse=parse.optional(parse.choice("error", "warn", "info", "debug")),
        help="least severe runtime message that is shown; none means the level of log_level",
        native="log_level",
    ),
    Option(
        key="sim.log_format",
        default=None,
        parse=parse.optional(parse.choice("text", "json")),
        help="how messages of the runtime are written; none follows log_format",
        native="log_format",
    ),
)
