"""Settings of the backend."""

from __future__ import annotations

from pto_core.interfaces import Option, parse

FOLDER = Option(
    key="a2a3.library_folder",
    default=None,
    parse=parse.optional(parse.text),
    help="folder of the libraries of CANN and its driver; none: the search path of the loader",
    native="folder",
    is_of_host=True,
)
VERSION = Option(
    key="a2a3.cann_version",
    default=None,
    parse=parse.optional(parse.text),
    help="release of CANN, such as 8.3; none: the release that CANN reports",
    native="version",
)
FAKE = Option(
    key="a2a3.fake",
    default=False,
    parse=parse.boolean,
    help="accept the fake driver of the tests; its results are labelled 'fake device'",
    native="fake",
)
DEVICE_FOLDER = Option(
    key="a2a3.device_folder",
    default=None,
    parse=parse.optional(parse.text),
    help="folder of built libraries for the device; none: a run builds them, a check ends before",
    native="images",
    is_of_host=True,
)
VISIBLE_DEVICES = Option(
    key="a2a3.visible_devices",
    default=None,
    parse=parse.optional(parse.text),
    help="devices that this process may use, as CANN reads them; none: all",
    environment="ASCEND_RT_VISIBLE_DEVICES",
    native="visible",
)
POOL = Option(
    key="a2a3.pool_mib",
    default=6144,
    parse=parse.integer(minimum=1, maximum=2**20),
    help="device memory in MiB for the runtime and its runs, such as the heap rings",
    native="pool_mib",
)
KERNEL_TIMEOUT = Option(
    key="a2a3.kernel_timeout_s",
    default=45,
    parse=parse.integer(minimum=1, maximum=1_000_000),
    help="seconds after which the device stops a launch on the cores; a run is one launch",
    native="kernel_timeout_s",
)
SYNCHRONISE_TIMEOUT = Option(
    key="a2a3.synchronise_timeout_s",
    default=50,
    parse=parse.integer(minimum=1, maximum=1_000_000),
    help="seconds that the host waits for a launch; more than a2a3.kernel_timeout_s",
    native="synchronise_timeout_s",
)
LOG_LEVEL = Option(
    key="a2a3.log_level",
    default=None,
    parse=parse.optional(parse.choice("error", "warn", "info", "debug")),
    help="least severe message of the device that is shown; none means the level of log_level",
    native="log_level",
)
LOG_FORMAT = Option(
    key="a2a3.log_format",
    default=None,
    parse=parse.optional(parse.choice("text", "json")),
    help="how messages of the device are written; none follows log_format",
    native="log_format",
)
BOOTSTRAP = tuple(
    Option(
        key=f"a2a3.bootstrap_{part}",
        default=None,
        parse=parse.optional(parse.text),
        help=f"{meaning}; none: the name in CANN 8.1 to 9.1",
        native=f"bootstrap_{part}",
    )
    for part, meaning in (
        ("operation", "operation through which CANN runs our first library on the AICPU"),
        ("kernel", "function of CANN's AICPU library for a2a3.bootstrap_operation"),
        ("library", "CANN's AICPU library for a2a3.bootstrap_operation"),
    )
)
TIMEOUTS = (KERNEL_TIMEOUT, SYNCHRONISE_TIMEOUT)
OF_CHECK = (FOLDER, VERSION, FAKE, DEVICE_FOLDER, VISIBLE_DEVICES, *TIMEOUTS, *BOOTSTRAP)
"""The settings of the check of a card."""
OPTIONS = (*OF_CHECK, POOL, LOG_LEVEL, LOG_FORMAT)
