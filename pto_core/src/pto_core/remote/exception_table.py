"""The exceptions that are rebuilt from their name and plain values on another host.

All others arrive as a RemoteError. KeyboardInterrupt, SystemExit and other exceptions that are not
an Exception are not in the table: they would end the program that receives them.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping

from pto_core import errors
from pto_core.errors import PtoError
from pto_core.hierarchy.serialisation import NotImportableError

_OF_THE_TREE = (getattr(errors, name) for name in errors.__all__)

OWN_ERRORS: Mapping[str, type[PtoError]] = {
    **{kind.__name__: kind for kind in _OF_THE_TREE if issubclass(kind, PtoError)},
    NotImportableError.__name__: NotImportableError,
}
"""The errors of pto by name; they are made from a message and fields."""

BUILTINS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in vars(builtins).values()
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, BaseExceptionGroup)
    and kind.__module__ == builtins.__name__
}
"""The built-in exceptions by name; they are made from their arguments."""
