"""Make and check CURVE keys. A key is a text in Z85: 40 characters for 32 bytes."""

from __future__ import annotations

from collections.abc import Collection

import zmq
from zmq.utils import z85

from pto_core.errors import UsageError
from pto_transport_zmq.link.interface import KeyPair

_CHARACTERS = 40
_BYTES = 32


def key_pair() -> KeyPair:
    """Return a new pair of keys."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def check_listener(credentials: KeyPair | None, allowed: Collection[str]) -> None:
    """Raise :class:`~pto_core.errors.UsageError` unless a listener can use these keys."""
    if credentials is not None:
        _check_pair(credentials)
    elif allowed:
        raise UsageError(
            f"{len(allowed)} keys are allowed, but the listener has no keys of its own and cannot "
            "verify any; pass credentials, or no allowed keys",
            name="allowed",
            value=len(allowed),
        )
    check_allowed(allowed)


def check_allowed(allowed: Collection[str]) -> None:
    """Raise :class:`~pto_core.errors.UsageError` unless every text is a public key."""
    for key in allowed:
        _check_key(key, "an allowed key")


def check_link(credentials: KeyPair | None, server_key: str | None) -> None:
    """Raise :class:`~pto_core.errors.UsageError` unless a link can use these keys."""
    if (credentials is None) != (server_key is None):
        missing = "credentials" if credentials is None else "server_key"
        raise UsageError(
            f"{missing} is missing; a link needs credentials and server_key, or neither",
            name=missing,
        )
    if credentials is not None and server_key is not None:
        _check_pair(credentials)
        _check_key(server_key, "server_key")


def _check_pair(credentials: KeyPair) -> None:
    _check_key(credentials.public, "the public key")
    _check_key(credentials.secret, "the secret key", is_secret=True)
    if zmq.curve_public(credentials.secret.encode()).decode() != credentials.public:
        raise UsageError(
            f"the secret key does not belong to the public key {credentials.public}; load both "
            "from the same key set",
            name="credentials",
        )


def _check_key(key: str, what: str, is_secret: bool = False) -> None:
    try:
        is_key = len(key) == _CHARACTERS and len(z85.decode(key)) == _BYTES
    except (KeyError, ValueError, OverflowError, UnicodeError):
        is_key = False
    if not is_key:
        shown = f"text of {len(key)} characters" if is_secret else repr(key)
        raise UsageError(
            f"{what} is not a CURVE key: {shown}; expected {_CHARACTERS} characters of Z85, as "
            "key_pair() returns them",
            name=what,
        )


def from_bytes(key: bytes) -> str:
    """Return a key of 32 bytes as text."""
    return z85.encode(key).decode()
