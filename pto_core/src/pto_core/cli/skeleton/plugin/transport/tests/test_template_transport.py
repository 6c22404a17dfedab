"""The contract tests of a transport; the docstring of each test states a rule."""

from typing import Any

from pto_core.testing import TransportContract


class TestTemplate(TransportContract):
    """The contract of the transport ``template``."""

    transport = "template"

    @staticmethod
    def spoil_frames(parent_end: Any, noise: bytes) -> None:
        """Send invalid bytes to the child."""
        parent_end.packets.send(noise)

    @staticmethod
    def spoil_answers(child_end: Any, noise: bytes) -> None:
        """Send invalid bytes to the parent."""
        child_end.packets.send(noise)
