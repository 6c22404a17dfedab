"""The contract tests of a scheduler; the docstring of each test states a rule."""

from pto_devkit import SchedulerContract


class TestTemplate(SchedulerContract):
    """The contract of the scheduler ``template``."""

    scheduler = "template"
