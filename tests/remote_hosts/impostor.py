"""A hostile host that has the secret key of an agent.

usage: impostor.py KEYS KIND BOMB

It prints its address, accepts sessions, and sends a pickle that appends to the file BOMB when it is
loaded. If KIND is 0, the pickle is the answer to the request for a session; otherwise, a message of
that kind in the open session.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

from pto_transport_zmq.link.interface import LinkMessage, split_address
from pto_transport_zmq.link.loading import load_links
from pto_transport_zmq.remote.agent_messages import (
    Ended,
    Open,
    Opened,
    Status,
    build,
    decode_request,
    pack,
    pack_head,
    unpack,
)
from pto_transport_zmq.remote.keys import AGENT, CLIENT, key_pair, public_key
from pto_transport_zmq.remote.lease import now_ns
from pto_transport_zmq.remote.messages import MessageKind
from pto_transport_zmq.remote.session import AcceptedSession, Identity, RemoteSession, Side

BULK_KINDS = 64


class Bomb:
    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"echo $PPID >> {self.file}",)


class Impostor:
    def __init__(self, keys: Path, kind: int, bomb: bytes) -> None:
        self.kind, self.bomb = kind, bomb
        self.plugin = load_links("zmq")
        self.pair, self.allowed = key_pair(keys, AGENT, "zmq"), [public_key(keys, CLIENT, "zmq")]
        self.agent = self.plugin.listen("tcp://127.0.0.1:0", self.pair, self.allowed)
        self.listeners = [self.agent]
        self.session: RemoteSession | None = None
        self.end: AcceptedSession | None = None
        self.has_sent = False

    def run(self) -> None:
        print(self.agent.address, flush=True)
        while True:
            self.plugin.wait(self.listeners, 0.01)
            while (message := self.agent.receive()) is not None:
                self.answer(message)
            if self.session is not None:
                self.serve(self.session)

    def answer(self, message: LinkMessage) -> None:
        number, _, content = unpack(message.parts)
        request = decode_request(content)
        if isinstance(request, Open):
            parts = (
                [pack_head(number), self.bomb]
                if not self.kind
                else pack(number, self.open(request))
            )
        elif request.__struct_config__.tag == "status":
            parts = pack(number, Status(build(), self.agent.address, False, []))
        else:
            parts = pack(number, Ended())
        self.agent.send(message.peer, parts)

    def open(self, request: Open) -> Opened:
        if self.session is None:
            listener = self.plugin.listen("tcp://127.0.0.1:0", self.pair, self.allowed)
            self.listeners.append(listener)
            identity = Identity.of_this_process(build(), request.lease_ns)
            name, epoch = request.session, request.epoch
            self.session = RemoteSession(Side.GATEWAY, identity, name, epoch, now_ns())
            self.end = AcceptedSession(self.plugin, listener, self.session)
            self.port = split_address(listener.address)[1]
        return Opened(self.port)

    def serve(self, session: RemoteSession) -> None:
        assert self.end is not None
        self.end.receive(now_ns())
        if session.peer is not None and not self.has_sent:
            self.has_sent = True
            session.send(MessageKind.READY, [b""])
            is_bulk = self.kind >= BULK_KINDS
            (session.send_bulk if is_bulk else session.send)(self.kind, [self.bomb])
        self.end.flush(now_ns())


def main() -> None:
    keys, kind, bomb = sys.argv[1:]
    Impostor(Path(keys), int(kind), pickle.dumps(Bomb(bomb))).run()


if __name__ == "__main__":
    main()
