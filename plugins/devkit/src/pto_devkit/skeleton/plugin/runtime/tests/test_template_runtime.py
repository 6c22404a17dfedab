"""The contract tests of a runtime variant; the docstring of each test states a rule."""

from pto_devkit import RuntimeContract


class TestTemplate(RuntimeContract):
    """The contract of the runtime variant ``template``, tested on the simulator."""

    runtime = "template"
    backend = "a2a3sim"
