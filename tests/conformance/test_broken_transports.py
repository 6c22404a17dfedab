"""The kit finds the defects of transports: each broken one fails the test that is named here."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import packets
import pytest

from pto_core import plugins
from pto_core.interfaces import NativeTransport
from pto_devkit import TransportContract

BROKEN = Path(__file__).parent / "broken" / "broken_transport.cpp"

# Defects of a native transport, and the test that must find each; other tests may find it too.
NATIVE_DEFECTS = {
    "knows_every_name": "test_table",
    "claims_less": "test_table",
    "asks_for_too_little": "test_memory_needed",
    "does_not_ring": "test_bells",
    "rings_its_own_bell": "test_bells",
    "takes_at_once": "test_frames_stay_until_taken",
    "gives_room_early": "test_answers_stay_until_the_next_poll",
    "loses_a_frame": "test_frames_in_order",
    "repeats_a_frame": "test_frames_in_order",
    "swaps_frames": "test_frames_in_order",
    "cuts_data": "test_frames_arrive_whole",
    "forgets_a_member": "test_frames_arrive_whole",
    "merges_a_failure": "test_answers_in_order",
    "swaps_answers": "test_child_closes",
    "repeats_an_answer": "test_answers_in_order",
    "is_never_full": "test_full_queue_takes_fewer",
    "holds_less": "test_queue_holds_what_was_asked_for",
    "loses_answers_when_full": "test_full_answers_are_refused",
    "refuses_the_largest": "test_largest_frame",
    "takes_what_is_too_large": "test_largest_frame",
    "says_no_words": "test_largest_frame",
    "waits_for_frames": "test_idle_calls_return",
    "forgets_what_was_sent": "test_parent_closes",
    "never_says_closed": "test_parent_closes",
    "leaves_a_descriptor": "test_nothing_is_left",
    "starts_a_thread": "test_nothing_is_left",
    "believes_lengths": "test_hostile_bytes",
    "remembers_an_earlier_child": "test_connection_is_made_again",
    "mixes_connections": "test_connections_are_apart",
}

# Changes of the Python example, each of which adds a defect.
PYTHON_DEFECTS = {
    "keeps_the_others_end": ("abandon = close", "def abandon(self): pass", "test_parent_closes"),
    "blocks": ("setblocking(False)", "setblocking(True)", "test_idle_calls_return"),
    "loses_what_was_given_before_a_reset": (
        "may still arrive\n                continue",
        "may still arrive\n                raise EndpointClosedError('reset') from None",
        "test_child_closes",
    ),
    "says_closed_before_what_it_got": ("if not got:", "if True:", "test_child_closes"),
    "turns_batches_around": (
        "in enumerate(messages)",
        "in enumerate(messages[::-1])",
        "test_frames_in_order",
    ),
}
SPOIL = """
@staticmethod
def spoil_frames(parent_end, noise):
    parent_end.packets.send(noise)

@staticmethod
def spoil_answers(child_end, noise):
    child_end.packets.send(noise)
"""


ONE_TEST = """
import sys
from pto_core.errors import PtoError
from pto_devkit import ContractError, TransportContract
from pto_devkit.transports import processes

class Subject(TransportContract):
    transport = sys.argv[1]
{hooks}

processes.LIMIT_S = 2.0
try:
    getattr(Subject(), sys.argv[2])()
except (ContractError, PtoError) as failure:
    print("caught:", failure)
"""


@dataclass(frozen=True)
class Stranded:
    """A folder with one broken transport, and a function that runs contract tests of it."""

    folder: Path
    name: str
    hooks: str = ""

    def caught(self, test: str) -> str:
        """Run a test of the contract; return the message of its failure, or nothing."""
        paths = (str(self.folder), os.environ.get("PYTHONPATH", ""))
        program = ONE_TEST.replace("{hooks}", textwrap.indent(self.hooks, "    "))
        done = subprocess.run(
            [sys.executable, "-c", program, self.name, test],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.partition("caught:")[2]


def native_transport() -> NativeTransport:
    """Return the first installed native transport; its contract tests show that it works."""
    found = map(plugins.inspect, plugins.installed("transport"))
    loaded = [plugins.load_transport(each.record.name) for each in found if each.reach == "local"]
    return next(one for one in loaded if isinstance(one, NativeTransport))


def contract_tests() -> list[str]:
    return [name for name in vars(TransportContract) if name.startswith("test_")]


@pytest.fixture
def broken(stranger):
    """Install the broken native transport; the environment selects the defect."""
    working = native_transport()
    library = stranger.compile(
        BROKEN,
        f'-DPTO_WORKING_LIBRARY="{working.library()}"',
        f'-DPTO_WORKING_NAME="{working.name}"',
    )
    stranger.install_transport("broken", library, set(working.capabilities))
    return stranger


def test_broken_native_transports_are_caught(broken) -> None:
    """Without a defect, the wrapper passes, so the tests find the defect and not the wrapper."""
    caught_by = {defect: {test} for defect, test in NATIVE_DEFECTS.items()}
    found = broken.run_with_defects("TransportContract", caught_by, transport="broken")
    assert found.pop("nothing") == {}
    assert found.keys() == NATIVE_DEFECTS.keys()
    assert all(found.values()), found


@pytest.mark.parametrize("defect", PYTHON_DEFECTS)
def test_broken_python_transport_is_caught(tmp_path, defect) -> None:
    old, new, test = PYTHON_DEFECTS[defect]
    packets.install(tmp_path)
    module = tmp_path / "pto_transport_packets.py"
    assert old in module.read_text()
    module.write_text(module.read_text().replace(old, new))
    assert Stranded(tmp_path, "packets", SPOIL).caught(test)


def test_every_test_of_the_contract_catches_something() -> None:
    caught = {*NATIVE_DEFECTS.values(), *(test for _, _, test in PYTHON_DEFECTS.values())}
    # The clogged tests repeat other tests. The test with a killed child checks nothing that the
    # wrapper breaks.
    others = {
        "test_frames_in_order_clogged",
        "test_answers_in_order_clogged",
        "test_killed_child",
    }
    assert set(contract_tests()) == caught | others


def test_a_python_transport_must_define_how_invalid_bytes_reach_it(tmp_path) -> None:
    packets.install(tmp_path)
    message = Stranded(tmp_path, "packets").caught("test_hostile_bytes")
    assert "spoil_frames(parent_end, noise)" in message
