"""The exceptions that are rebuilt from their name and plain values on another host.

All others arrive as a RemoteError. KeyboardInterrupt, SystemExit and other exceptions that are not
an Exception are not in the table: they would end the program that receives them.
"""

from __future__ import annotations

import builtins
import io
import pickle
from collections.abc import Mapping
from typing import Any

from pto_core import errors
from pto_core.errors import PoisonedTask, PtoError
from pto_core.hierarchy.serialisation import NotImportableError

_OF_THE_TREE = (kind for kind in vars(errors).values() if isinstance(kind, type))

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


def load_known(content: bytes) -> Any:
    """Unpickle plain values and exceptions of the tables; raise UnpicklingError for any other."""
    try:
        return _KnownUnpickler(io.BytesIO(content)).load()
    except Exception as error:  # noqa: BLE001 - invalid bytes raise errors of many types
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None


class _KnownUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED_NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not in the tables")
        return super().find_class(module, name)


_REBUILD = PtoError("").__reduce__()[0]
_PICKLED_NAMES = {
    (one.__module__, one.__name__)
    for one in (_REBUILD, PoisonedTask, *OWN_ERRORS.values(), *BUILTINS.values())
}
