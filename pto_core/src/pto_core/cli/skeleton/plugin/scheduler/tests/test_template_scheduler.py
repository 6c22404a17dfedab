"""The contract of every scheduler; the docstring of each test is a rule."""

from pto_core.testing import SchedulerContract


class TestTemplate(SchedulerContract):
    """The contract of the scheduler ``template``."""

    scheduler = "template"
