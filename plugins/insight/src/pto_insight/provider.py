"""The interface of this package to the core: :class:`pto_core.interfaces.Insight`."""

from pto_insight.commands.logged_case import load_log
from pto_insight.dumps.recording import begin_dump, recover
from pto_insight.graphs import AccessLog, TaskGraph
from pto_insight.graphs.session_log import SessionLog
from pto_insight.records import recorder, unpacked_record
from pto_insight.run_page import write_run_page
from pto_insight.traces import joined
from pto_insight.traces.analysis import kernel_rows
from pto_insight.traces.files import read_flight, write_statistics, write_trace, write_worker_data
from pto_insight.traces.trace import from_native
from pto_insight.traces.worker_parts import (
    ClockOffset,
    Recorded,
    from_driver,
    merged,
    of_child,
    on_this_host,
    packed,
    ranges_of_device,
    unpacked,
)
from pto_insight.traces.worker_trace import WorkerTrace
from pto_insight.wrong_outputs import (
    explain_intermediates,
    explain_unsteady,
    explain_wrong,
    not_measured,
)

__all__ = [
    "AccessLog",
    "ClockOffset",
    "Recorded",
    "SessionLog",
    "TaskGraph",
    "WorkerTrace",
    "begin_dump",
    "explain_intermediates",
    "explain_unsteady",
    "explain_wrong",
    "from_driver",
    "from_native",
    "joined",
    "kernel_rows",
    "load_log",
    "merged",
    "not_measured",
    "of_child",
    "on_this_host",
    "packed",
    "ranges_of_device",
    "read_flight",
    "recorder",
    "recover",
    "unpacked",
    "unpacked_record",
    "write_run_page",
    "write_statistics",
    "write_trace",
    "write_worker_data",
]
