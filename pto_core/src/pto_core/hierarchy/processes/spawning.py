"""Start a child as a new interpreter, for programs that cannot use a fork.

The new interpreter reads a job from an unnamed file. It attaches the mappings at their addresses
before it imports other modules, then unpickles the body. Therefore a body must be picklable.
cloudpickle serialises functions of the main module by code, so the child does not import that
module. A child that will spawn children keeps the descriptors and passes the mappings on, so that
every level sees the memory of all levels above it.
"""

from __future__ import annotations

import errno
import os
import pickle
import sys
from multiprocessing.util import spawnv_passfds
from typing import Any, NamedTuple, NoReturn

from pto_core import _hierarchy
from pto_core.errors import UsageError
from pto_core.hierarchy.processes.child_start import ChildStart, flush_output, run_child
from pto_core.hierarchy.processes.descriptors import parent_only
from pto_core.hierarchy.processes.from_above import Place, keep, places_for
from pto_core.hierarchy.processes.parking import parked
from pto_core.hierarchy.processes.plan import ChildPlan
from pto_core.hierarchy.processes.reports import ReportReader

_COMMAND = (
    "import sys; sys.path[:] = {path!r}; "
    "from pto_core.hierarchy.processes.spawning import main; main()"
)
_MFD_NOEXEC_SEAL = 0x8  # some kernels create memory files only with this flag


class _Job(NamedTuple):
    """The content of the job file. The body is unpickled after the mappings are attached."""

    path: str
    mappings: list[Place]
    passes_on: bool
    mask: bytes
    descriptors: tuple[int, ...]
    arguments: list[str]
    body: bytes


class AddressTakenError(OSError):
    """The address of a mapping is in use in the new process. Another attempt may succeed."""


def pickled_body(plan: ChildPlan) -> bytes:
    """Return the pickled body of a child. Raises UsageError if it cannot be pickled."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(plan.body))
    except Exception as error:
        raise UsageError(
            f"{plan.path} cannot be started with start_method='spawn': {error}; remove objects "
            "that cannot be pickled from its settings and callables, or use start_method='fork'",
            name="start_method",
            value="spawn",
        ) from error


def spawn_child(plan: ChildPlan, parent: int, body: bytes) -> tuple[int, ReportReader]:
    """Start a child with its pickled ``body``; otherwise like :func:`fork_child`."""
    flush_output()
    mappings = places_for(plan)
    with parked():
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        mask = _hierarchy.block_signals()
        try:
            job = _Job(plan.path, mappings, plan.passes_on, mask, plan.descriptors, sys.argv, body)
            pid = _spawn(job, write_end, parent)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            _hierarchy.restore_signals(mask)
            os.close(write_end)
        parent_only(read_end)
    return pid, ReportReader(read_end)


def _spawn(job: _Job, reports: int, parent: int) -> int:
    source = _unnamed_file()
    try:
        with os.fdopen(source, "wb", closefd=False) as opened:
            pickle.dump(job, opened)
        os.lseek(source, 0, os.SEEK_SET)
        command = [os.fsencode(sys.executable), b"-P", b"-c"]
        command.append(_COMMAND.format(path=sys.path).encode())
        command += [str(number).encode() for number in (source, reports, parent)]
        passed = [source, reports, parent, *job.descriptors]
        passed += (descriptor for descriptor, _, _ in job.mappings)
        return int(spawnv_passfds(command[0], command, passed))
    finally:
        os.close(source)


def _unnamed_file() -> int:
    try:
        return os.memfd_create("pto-job", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # older Linux kernels do not know this flag
        return os.memfd_create("pto-job", os.MFD_CLOEXEC)


def main() -> NoReturn:
    """Run a child that :func:`spawn_child` started."""
    source, reports, parent = map(int, sys.argv[1:])
    with os.fdopen(source, "rb") as opened:
        job: _Job = pickle.load(opened)
    for descriptor in (reports, parent, *job.descriptors):
        os.set_inheritable(descriptor, False)
    kept: list[_hierarchy.SharedMapping] = []

    def prepare() -> Any:
        kept.extend(_attached(*mapping) for mapping in job.mappings)
        _keep_or_close(job)
        sys.argv = job.arguments
        return pickle.loads(job.body)

    run_child(ChildStart(job.path, reports), prepare, parent, job.mask)


def _attached(descriptor: int, nbytes: int, address: int) -> _hierarchy.SharedMapping:
    try:
        mapping = _hierarchy.SharedMapping.attach(descriptor, nbytes, address)
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise AddressTakenError(
                errno.EEXIST, f"{nbytes} bytes at {address:#x} are not free in the new process"
            ) from None
        raise
    return mapping


def _keep_or_close(job: _Job) -> None:
    for descriptor, _, _ in job.mappings:
        if job.passes_on:
            os.set_inheritable(descriptor, False)
        else:
            os.close(descriptor)
    if job.passes_on:
        keep(job.mappings)
