"""Keys and lists of clients are refused if another user could have written or read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pto_core.errors import ConfigError, UsageError
from pto_transport_zmq.link.interface import KeyPair
from pto_transport_zmq.remote.keys import key_pair, public_key, write_client_keys
from pto_transport_zmq.remote.rights import read_rights


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    write_client_keys(folder, "zmq", KeyPair("public", "secret"), "agent")
    return folder


def test_keys(keys: Path) -> None:
    assert key_pair(keys, "client", "zmq") == KeyPair("public", "secret")
    (keys / "client.public").chmod(0o666)
    with pytest.raises(UsageError, match=r"client\.public belongs to .* mode 0666"):
        public_key(keys, "client", "zmq")
    (keys / "client.public").chmod(0o644)
    keys.chmod(0o777)
    with pytest.raises(UsageError, match=r"keys belongs to .* mode 0777"):
        public_key(keys, "client", "zmq")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_can_read(keys: Path, mode: int) -> None:
    (keys / "client.secret").chmod(mode)
    with pytest.raises(UsageError, match=r"can be read by other users.*chmod 600"):
        key_pair(keys, "client", "zmq")


def test_a_list_of_clients(tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text('[[client]]\nname = "ann"\nkey = "k"\n')
    assert read_rights(file)
    file.chmod(0o666)
    with pytest.raises(ConfigError, match=r"clients\.toml belongs to .* mode 0666"):
        read_rights(file)
