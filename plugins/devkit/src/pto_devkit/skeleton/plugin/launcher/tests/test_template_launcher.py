"""The contract tests of a launcher; the docstring of each test states a rule."""

from pto_devkit.launchers import LauncherContract


class TestTemplate(LauncherContract):
    """The contract of the launcher ``template``."""

    launcher = "template"
