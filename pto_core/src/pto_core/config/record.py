"""The immutable record of all settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pto_core.config.environment import working_folder
from pto_core.config.setting import Entry, Setting, given, read_setting, unknown_setting

if TYPE_CHECKING:
    from pto_core.interfaces import Backend, Runtime


class Config(Mapping[str, Any]):
    """All settings of a run: a read-only mapping from key to value.

    ``config[key]`` raises a :class:`~pto_core.errors.ConfigError` with a suggestion if the key is
    unknown. Use ``config.get(key, default)`` for a key that not every plugin has. ``warnings``
    describes suspicious settings that are not errors, one sentence each.
    """

    __slots__ = ("_settings", "warnings")

    _settings: Mapping[str, Setting]
    warnings: tuple[str, ...]

    def __init__(self, settings: Iterable[Setting], warnings: Iterable[str] = ()) -> None:
        by_key = {setting.key: setting for setting in settings}
        object.__setattr__(self, "_settings", MappingProxyType(by_key))
        object.__setattr__(self, "warnings", tuple(warnings))

    def __getitem__(self, key: str) -> Any:
        return self.setting(key).value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __contains__(self, key: object) -> bool:
        return key in self._settings

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Config is immutable; replace({...}) returns a changed copy")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Config is immutable; replace({...}) returns a changed copy")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.settings(), self.warnings)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{key}={value!r}' for key, value in self.items())})"

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default`` if there is no such key."""
        return self._settings[key].value if key in self._settings else default

    def setting(self, key: str) -> Setting:
        """Return the value, the option and the origin of ``key``."""
        if key not in self._settings:
            raise unknown_setting(key, self._settings, "not part of this configuration")
        return self._settings[key]

    def origin(self, key: str) -> str:
        """Return the source from which the value of ``key`` was taken."""
        return self.setting(key).origin

    def settings(self) -> tuple[Setting, ...]:
        """List all settings; those of the core come first."""
        return tuple(self._settings.values())

    def native_options(self, prefix: str) -> dict[str, str]:
        """Return the options that a plugin's native library receives, as text.

        ``prefix`` is the part of the keys before the first dot. Options whose value is None are
        omitted, so that the library uses its own defaults.
        """
        chosen = (s for s in self.settings() if s.key.partition(".")[0] == prefix)
        return {
            setting.option.native: _native_text(setting.value)
            for setting in chosen
            if setting.option.native is not None and setting.value is not None
        }

    def native_options_of(self, plugin: Backend | Runtime) -> dict[str, str]:
        """Return the options of the plugin's native library; settings of the core are defaults.

        The plugin's options are part of this record.
        """
        found: dict[str, str] = {}
        for prefix in dict.fromkeys(option.key.partition(".")[0] for option in plugin.options()):
            found.update(self.native_options(prefix))
        known = {option.native for option in plugin.options()}
        for name in {"log_level", "log_format"} & known:
            found.setdefault(name, self[name])
        if "gaps" in known:
            found.setdefault("gaps", "1" if self["measure"] else "0")
        return found

    def replace(self, argument: Mapping[str, Any]) -> Config:
        """Return a record in which the values of ``argument`` replace those of this record."""
        replaced = dict(self._settings)
        for key, raw in given(argument).items():
            if key not in replaced:
                raise unknown_setting(key, replaced, "argument")
            entry = Entry(key, raw, "argument", working_folder())
            replaced[key] = read_setting(replaced[key].option, entry)
        return Config(replaced.values(), self.warnings)


def _native_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, tuple):
        return ",".join(map(_native_text, value))
    return str(value)
