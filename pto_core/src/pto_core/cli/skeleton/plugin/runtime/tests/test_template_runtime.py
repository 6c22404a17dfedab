"""The contract of every runtime variant; each test's docstring is a rule."""

from pto_core.testing import RuntimeContract


class TestTemplate(RuntimeContract):
    """The contract of the runtime variant ``template``, on the simulator."""

    runtime = "template"
    backend = "a2a3sim"
