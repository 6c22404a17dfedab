"""The contract tests of a link; the docstring of each test states a rule."""

from pto_devkit import LinkContract


class TestTemplate(LinkContract):
    """The contract of the link ``template``."""

    link = "template"
    # The header of a message with two parts of almost 4 GiB each.
    giant = b"TCPL" + (2).to_bytes(4, "little") + (2**32 - 1).to_bytes(4, "little") * 2
