"""The key files of one installation: a pair for the agents, and a pair for the parent.

A key set is a folder with ``agent.public``, ``agent.secret``, ``client.public`` and
``client.secret``. A file has one line: the name of the transport that made the key, and the key.
Only the owner can read the secret files.
"""

from __future__ import annotations

import os
from pathlib import Path

from pto_core.errors import UsageError
from pto_core.trust import make_folder, reason_for_distrust
from pto_transport_zmq.link.interface import KeyPair, Links

AGENT, CLIENT = "agent", "client"


def new_keys(folder: Path, plugin: Links) -> list[Path]:
    """Write a new key set and return its files; raise UsageError if one of them exists."""
    files = [folder / f"{owner}.{part}" for owner in (AGENT, CLIENT) for part in _PARTS]
    for file in files:
        if file.exists():
            raise UsageError(
                f"{file} exists; remove the key set or choose another folder",
                name="folder",
                value=str(folder),
            )
    make_folder(folder)
    for owner in (AGENT, CLIENT):
        pair = plugin.key_pair()
        _write(folder / f"{owner}.public", f"{plugin.name} {pair.public}\n", 0o644)
        _write(folder / f"{owner}.secret", f"{plugin.name} {pair.secret}\n", 0o600)
    return files


def write_client_keys(folder: Path, transport: str, client: KeyPair, agent_public: str) -> None:
    """Write the keys that a client needs for one agent to a new folder, which only the owner reads.

    ``transport``: the name of the transport that made the keys.
    """
    folder.mkdir(mode=0o700)
    _write(folder / f"{AGENT}.public", f"{transport} {agent_public}\n", 0o644)
    _write(folder / f"{CLIENT}.public", f"{transport} {client.public}\n", 0o644)
    _write(folder / f"{CLIENT}.secret", f"{transport} {client.secret}\n", 0o600)


def key_pair(folder: Path, owner: str, transport: str) -> KeyPair:
    """Return the keys of ``agent`` or ``client``; raise UsageError if they cannot be read."""
    return KeyPair(
        public_key(folder, owner, transport), _read(folder / f"{owner}.secret", transport)
    )


def public_key(folder: Path, owner: str, transport: str) -> str:
    """Return the public key of ``agent`` or ``client``; raise UsageError."""
    return _read(folder / f"{owner}.public", transport)


_PARTS = ("public", "secret")


def _write(file: Path, text: str, mode: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)


def _read(file: Path, transport: str) -> str:
    try:
        if file.suffix == ".secret" and file.stat().st_mode & 0o077:
            raise UsageError(
                f"{file} can be read by other users; protect it with `chmod 600 {file}`",
                name="keys",
                value=str(file),
            )
        reason = reason_for_distrust(file)
        if reason is not None:
            raise UsageError(
                f"the key file {file} is not used: {reason}", name="keys", value=str(file)
            )
        words = file.read_bytes().decode("ascii", "replace").split()
    except OSError as error:
        raise UsageError(
            f"the key file {file} cannot be read: {error.strerror}; make a key set with "
            f"`pto keys new {file.parent}`",
            name="keys",
            value=str(file),
        ) from error
    if len(words) != 2 or words[0] != transport:
        raise UsageError(
            f"{file} is not a key of the transport {transport!r}; make a key set with "
            "`pto keys new FOLDER`",
            name="keys",
            value=str(file),
        )
    return words[1]
