"""The kit finds the faults of a link: each broken one fails the test named here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tcp_links
from link_contract.contract import LinkContract

# Edits of the correct link over TCP, each with the test that must find it;
# other tests may find it too.
DEFECTS = {
    "cuts_a_part": ("bytes(self.received[a:b])", "bytes(self.received[a:b][:80_000])", "whole"),
    "merges_parts": (
        "return LinkMessage(self.peer, parts)",
        'return LinkMessage(self.peer, [parts[0], b"".join(parts[1:])] if parts[1:] else parts)',
        "whole",
    ),
    "repeats_a_message": (
        "del self.received[: ends[-1]]",
        "del self.received[: ends[-1] if len(parts) < 3 or parts[2] else 0]",
        "messages_in_order",
    ),
    "swaps_messages": (
        "self.queue.append(memoryview(message))",
        "self.queue.insert(max(len(self.queue) - 1, 1), memoryview(message))",
        "messages_in_order",
    ),
    "is_never_full": (
        "self.was_full = len(self.queue) >= self.limits.queue_messages",
        "self.was_full = False",
        "full_queue",
    ),
    "loses_when_full": ("return not self.was_full", "return True", "full_queue"),
    "reports_no_space": ("return self.fill() or has_space", "return self.fill()", "full_queue"),
    "sends_anything": ("check_message(parts, self.limits)", "pass", "refused_messages"),
    "confuses_peers": (
        "stream = self.streams.get(peer)",
        "stream = list(self.streams.values())[-1]",
        "peers_are_apart",
    ),
    "names_all_peers_alike": (
        'Peer(number.to_bytes(8, "big"), None)\n        self',
        'Peer(b"", None)\n        self',
        "peers_are_apart",
    ),
    "prefers_the_first_peer": (
        "self.streams[peer] = self.streams.pop(peer)",
        "pass",
        "peers_do_not_stop_each_other",
    ),
    "has_one_queue_for_all": (
        "return stream is None or stream.send(parts)",
        "return all(not s.was_full for s in self.streams.values()) and stream.send(parts)",
        "peers_do_not_stop_each_other",
    ),
    "ignores_descriptors": (
        "readable = [descriptor for",
        "readable = [] and [descriptor for",
        "wait_for_descriptors",
    ),
    "polls_late": (
        "poll.poll(max(rest_s, 0) * 1000)",
        "(poll.poll(0), time.sleep(max(rest_s, 0) * 300))[0]",
        "wait_wakes_at_once",
    ),
    "does_not_sleep": ("poll.poll(max(rest_s, 0) * 1000)", "poll.poll(0)", "wait_sleeps"),
    "returns_early": ("or rest_s <= 0:", "or True:", "wait_sleeps"),
    "blocks": ("connection.setblocking(False)", "connection.settimeout(5)", "idle_calls_return"),
    "works_after_close": ("if self.is_closed:", "if False:", "close"),
    "does_not_linger": ("time.monotonic() + linger_s\n", "time.monotonic() - 1\n", "close"),
    "raises_for_a_gone_peer": (
        "except OSError:\n            self.close()",
        "except ZeroDivisionError:\n            self.close()",
        "close_while_sending",
    ),
    "forgets_gone_peers_loudly": (
        "stream = self.streams.get(peer)",
        "stream = self.streams[peer]",
        "killed_peer",
    ),
    "does_not_reconnect": (
        "if any(stream.is_open for stream in self.streams.values()):",
        "if self.connections:",
        "reconnection",
    ),
    "does_not_report_a_connection": (
        "news = self.connect()",
        "news = self.connect() and False",
        "reconnection",
    ),
    "does_not_count": ('self.connections + 1, ""', '1, ""', "reconnection"),
    "has_no_problem": (
        'self.problem = f"cannot connect to {self.address}: {error}"',
        "pass",
        "listener_restarts",
    ),
    "keeps_its_problem": (
        'self.connections + 1, ""',
        "self.connections + 1, self.problem",
        "listener_restarts",
    ),
    "is_open_to_all": ("require_loopback(address)", "pass", "addresses"),
    "raises_any_error": (
        "except OSError as error:\n            raise",
        "except ZeroDivisionError as error:\n            raise",
        "addresses",
    ),
    "leaves_a_socket": (
        "        self.server.close()",
        "        self.server.detach()",
        "nothing_is_left",
    ),
    "takes_any_bytes": (
        "return self.refuse()\n        if len(self.received) < ends[0]",
        "return [0, len(self.received)]\n        if len(self.received) < ends[0]",
        "garbage",
    ),
    "raises_for_garbage": (
        "def refuse(self) -> list[int]:",
        "def refuse(self) -> list[int]:\n        raise ValueError('no link')",
        "garbage",
    ),
    "waits_for_each_connection": (
        "self.streams[peer] = Stream(",
        "connection.settimeout(0.02), select.select([connection], [], [], 0.02)\n"
        "        self.streams[peer] = Stream(",
        "half_open_connections",
    ),
    "believes_a_length": (
        "if size > self.limits.part_bytes:",
        "if size > 1 << 30 and bytearray(size // 16) is None:",
        "giant_length",
    ),
    "takes_parts_over_its_limit": (
        "if size > self.limits.part_bytes:",
        "if size > 1 << 30:",
        "oversized_parts",
    ),
    "accepts_keys": (
        "if credentials is not None:",
        "if False:",
        "without_keys",
    ),
}
# Faults of keys, planted in the link of this repository.
KEY_DEFECTS = {
    "repeats_its_keys": (
        "pair = ZmqLinks().key_pair()\nBroken.key_pair = lambda self: pair",
        "key_pairs",
    ),
    "names_no_key": (
        "receive = ends.ZmqListener.receive\n"
        "def anonymous(self):\n"
        "    message = receive(self)\n"
        "    return message and message._replace(peer=message.peer._replace(key=None))\n"
        "ends.ZmqListener.receive = anonymous",
        "peer_keys",
    ),
    "admits_any_key": (
        "class Everyone(frozenset):\n"
        "    __contains__ = lambda self, key: True\n"
        "ends.frozenset = Everyone",
        "wrong_keys",
    ),
    "keeps_its_first_list": (
        "ends.ZmqListener.allow = lambda self, keys: None",
        "allowed_keys_change",
    ),
    "does_not_encrypt": (
        "Broken.listen = lambda self, address, *_, **options: ZmqLinks.listen(self, address)\n"
        "Broken.dial = lambda self, address, *_, **options: ZmqLinks.dial(self, address)",
        "traffic_is_encrypted",
    ),
}
BROKEN_MODULE = """
from pto_transport_zmq import LinkTransport
from pto_transport_zmq.link import ZmqLinks, ends

class Broken(ZmqLinks):
    name = "broken"

plugin = LinkTransport(Broken())
"""
TEST_OF = {"whole": "test_messages_arrive_whole"}
STUCK_AFTER_S = 2.0
ONE_TEST = """
import sys
from pto_core.errors import PtoError
from link_contract.contract import LinkContract
from pto_devkit import ContractError
from pto_devkit.transports import processes

class Subject(LinkContract):
    link = sys.argv[1]
    giant = bytes.fromhex(sys.argv[2])

processes.LIMIT_S = float(sys.argv[3])
try:
    getattr(Subject(), sys.argv[4])()
except (ContractError, PtoError) as failure:
    print("caught:", failure)
"""


def caught(folder: Path, name: str, giant: bytes, test: str) -> str:
    """Run one test of the contract; return the message of its failure, or nothing."""
    paths = (str(folder), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, "-c", ONE_TEST, name, giant.hex(), str(STUCK_AFTER_S), test],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.partition("caught:")[2]


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_broken_link_is_caught(tmp_path: Path, defect: str) -> None:
    old, new, test = DEFECTS[defect]
    tcp_links.install(tmp_path)
    module = tmp_path / "pto_link_tcp.py"
    assert old in module.read_text()
    module.write_text(module.read_text().replace(old, new))
    assert caught(tmp_path, tcp_links.NAME, tcp_links.GIANT, TEST_OF.get(test, f"test_{test}"))


@pytest.mark.parametrize("defect", KEY_DEFECTS)
def test_a_link_with_broken_keys_is_caught(tmp_path: Path, defect: str) -> None:
    edit, test = KEY_DEFECTS[defect]
    tcp_links.install(tmp_path, "broken", BROKEN_MODULE + edit + "\n")
    assert caught(tmp_path, "broken", b"", f"test_{test}")


def test_every_test_of_the_contract_catches_something() -> None:
    tests = [
        *(test for _, _, test in DEFECTS.values()),
        *(test for _, test in KEY_DEFECTS.values()),
    ]
    contract = {name for name in vars(LinkContract) if name.startswith("test_")}
    assert contract == {TEST_OF.get(test, f"test_{test}") for test in tests}
