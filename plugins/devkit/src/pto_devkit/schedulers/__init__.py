"""The contract of schedulers: random programs on simulated children, and checks of the results."""

from pto_devkit.schedulers.contract import SchedulerSubject

__all__ = ["SchedulerSubject"]
