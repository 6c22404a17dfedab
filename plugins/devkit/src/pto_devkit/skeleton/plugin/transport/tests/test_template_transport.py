"""The contract tests of a transport; the docstring of each test states a rule."""

from typing import Any

from pto_devkit import TransportContract


class TestTemplate(TransportContract):
    """The contract of the transport ``template``."""

    transport = "template"

    @staticmethod
    def spoil_frames(parent_end: Any, noise: bytes) -> None:
        """Send ``noise`` instead of a frame; the contract tests how the child handles it."""
        parent_end.packets.send(noise)

    @staticmethod
    def spoil_answers(child_end: Any, noise: bytes) -> None:
        """Send ``noise`` instead of an answer; the contract tests how the parent handles it."""
        child_end.packets.send(noise)
