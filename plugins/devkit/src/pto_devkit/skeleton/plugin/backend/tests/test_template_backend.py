"""The contract tests of a backend; the docstring of each test states a rule."""

from pto_devkit import BackendContract, RuntimeContract


class TestTemplate(BackendContract):
    """The contract of the backend ``template``."""

    backend = "template"


class TestRuntime(RuntimeContract):
    """The contract of a runtime variant, tested on this backend."""

    backend = "template"
    runtime = "host_build_graph"
