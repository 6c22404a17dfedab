"""Read the settings once into an immutable record that knows the origin of each value.

The sources in order of precedence, strongest first: argument, ``--set key=value``, the case,
environment, file, default. The file is the first ``pto.toml``, or ``pyproject.toml`` with a
``[tool.pto]`` table, in the current folder or one of its parents. No other module reads environment
variables.

A key without a dot belongs to the core; a key with a dot belongs to a plugin. A record contains
only the settings of the core and of the chosen backend and runtime.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pto_core.config.options import core_options
from pto_core.errors import ConfigError, UsageError
from pto_core.errors.values import shown, suggestion
from pto_core.interfaces.plugin import Option
from pto_core.trust import reason_for_distrust

if TYPE_CHECKING:
    from pto_core.interfaces import Backend, Runtime


@dataclass(frozen=True)
class Setting:
    """One value, its option, and its origin.

    ``origin`` is a readable text: ``"argument"``, ``"environment PTO_BACKEND"``, ``"pto.toml:3"``,
    ``"default"``, ...
    """

    option: Option
    value: Any
    origin: str

    @property
    def key(self) -> str:
        """The dotted name."""
        return self.option.key

    @property
    def is_argument(self) -> bool:
        """Whether the program passed the value."""
        return self.origin == "argument"


@dataclass(frozen=True)
class Entry:
    """The raw, unchecked value of a key, and the source that contains it.

    Relative paths in the value are relative to ``folder``.
    """

    key: str
    raw: Any
    origin: str
    folder: Path


def read_setting(option: Option, entry: Entry) -> Setting:
    """Parse ``entry``. Raises :class:`ConfigError` if the option does not accept the value."""
    text = as_text(entry.key, entry.raw, entry.origin)
    try:
        value = option.parse(text)
    except ValueError as error:
        raise _wrong(entry.key, entry.raw, entry.origin, str(error)) from None
    if isinstance(value, Path) and not value.is_absolute():
        value = entry.folder / value
    return Setting(option, value, entry.origin)


def unknown_setting(key: str, known: Iterable[str], origin: str, why: str = "") -> ConfigError:
    """Return the error for an unknown key."""
    otherwise = (
        "; no installed plugin has this setting"
        if "." in key
        else "; `pto config` lists all settings"
    )
    hint = why or suggestion(key, known) or otherwise
    return ConfigError(f"unknown setting {shown(key)} ({origin}){hint}", name=key, origin=origin)


def given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values without keys whose value is None, because None means "not set"."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ConfigError(
            f"the settings are {shown(values)}; pass a dict whose keys are texts",
            name="settings",
            value=values,
        )
    return {key: value for key, value in values.items() if value is not None}


def as_text(key: str, raw: Any, origin: str) -> str:
    """Return the text form of a TOML or Python value. Raises ConfigError if it has no text form."""
    try:
        return _text(raw)
    except ValueError as error:
        raise _wrong(key, raw, origin, str(error)) from None


def _wrong(key: str, raw: Any, origin: str, expected: str) -> ConfigError:
    return ConfigError(
        f"{key} = {shown(raw)} ({origin}): expected {expected}",
        name=key,
        value=raw,
        expected=expected,
        origin=origin,
    )


def _text(raw: Any) -> str:
    """Convert a TOML or Python value to the text that parsers accept."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | Path):
        return str(raw)
    if isinstance(raw, numbers.Real):  # also a number of NumPy
        with contextlib.suppress(ArithmeticError, ValueError):  # beyond float, or of many digits
            return str(int(raw) if isinstance(raw, numbers.Integral) else float(raw))
    if isinstance(raw, list | tuple) and not any(isinstance(one, list | tuple) for one in raw):
        return ",".join(map(_text, raw))
    raise ValueError("a text, a number, true or false, or a list of such values")


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
        """List all settings; the settings of the core come first."""
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


_FAMILIES = ("backend", "runtime")
_WITH_DEFAULT = (*_FAMILIES, "transport")
"""The families of which only one plugin may be installed; then it is the default."""
# The settings that name another plugin, and its family.
_NAMES = {
    **{family: family for family in ("transport", "launcher")},
    "remote_transport": "transport",
    "policy": "scheduler",
}


def load(
    argument: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
    case: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Iterable[Option] = (),
    *,
    case_environ: Mapping[str, str] | None = None,
    case_origin: str = "case",
) -> Config:
    """Read the settings of the core and of ``options``, the options of the chosen plugins.

    ``argument`` and ``case`` map keys to values; None means "not set". ``set_`` lists ``key=value``
    texts. ``case_environ`` is the ``RUNTIME_ENV`` of a case; its variables count as settings of the
    case. ``environ`` and ``cwd`` default to those of the process.

    Aliases of plugins are replaced by the plugins' names. The file and the environment serve many
    runs, so their keys for installed plugins that are not chosen are ignored. In the other sources,
    such keys are errors. Raises :class:`~pto_core.errors.ConfigError`.
    """
    sources = _Sources(argument, set_, case, cwd, environ, case_environ, case_origin)
    return _load(sources, options)


def load_core(
    argument: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
    case: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read only the settings of the core. Keys of plugins are ignored; aliases are not resolved."""
    sources = _Sources(argument, set_, case, cwd, environ, None, "case")
    return Config(sources.merge(_table(core_options(sources.environ)), tolerant=True).values())


def load_with_plugins(
    argument: Mapping[str, Any] | None = None,
    set_: Sequence[str] = (),
    case: Mapping[str, Any] | None = None,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    case_environ: Mapping[str, str] | None = None,
    case_origin: str = "case",
) -> Config:
    """Read the settings of the core, and of the backend and runtime that they choose.

    Imports those two plugins and no other. Raises :class:`~pto_core.errors.ConfigError` or
    :class:`~pto_core.errors.PluginError`.
    """
    from pto_core import plugins

    sources = _Sources(argument, set_, case, cwd, environ, case_environ, case_origin)
    core = sources.merge(_table(core_options(sources.environ)), tolerant=True)
    chosen = [plugins.load_unopened(family, core[family].value) for family in _FAMILIES]
    return _load(sources, [option for plugin in chosen for option in plugin.options()])


class _Sources:
    """The sources of settings, as texts and mappings. Their values are not checked yet."""

    def __init__(
        self,
        argument: Mapping[str, Any] | None,
        set_: Sequence[str],
        case: Mapping[str, Any] | None,
        cwd: Path | None,
        environ: Mapping[str, str] | None,
        case_environ: Mapping[str, str] | None,
        case_origin: str,
    ) -> None:
        self.cwd = working_folder() if cwd is None else Path(cwd)
        self.environ = process_environment() if environ is None else environ
        self._case_environ = case_environ or {}
        self._variables_origin = f"{case_origin.removesuffix(' RUNTIME_CONFIG')} RUNTIME_ENV"
        self._explicit = (
            *self._from_mapping(case, case_origin),
            *(self._from_text(text) for text in set_),
            *self._from_mapping(argument, "argument"),
        )
        self._file = file_entries(self.cwd)

    def merge(self, known: Mapping[str, Option], tolerant: bool) -> dict[str, Setting]:
        """Apply all sources in order; if ``tolerant``, ignore unknown keys that contain a dot."""
        settings = {
            key: Setting(option, option.default, "default") for key, option in known.items()
        }
        shared = (*self._file, *self._from_variables(known, self.environ, "environment"))
        in_case = self._from_variables(known, self._case_environ, self._variables_origin)
        for entry in (*shared, *in_case, *self._explicit):
            if entry.key in known:
                settings[entry.key] = read_setting(known[entry.key], entry)
            elif not (tolerant and "." in entry.key):
                _ignore_or_refuse(entry, known, shared=entry in shared)
        for family in _WITH_DEFAULT:
            settings[family] = _installed_default(settings[family])
        return settings

    def warnings(self, known: Mapping[str, Option]) -> list[str]:
        """List the ``PTO_`` and ``PTO2_`` variables that no known option reads."""
        read = {option.variable for option in known.values()}
        places = {
            "environment variable {}": self.environ,
            f"{self._variables_origin}: {{}}": self._case_environ,
        }
        if any(unknown_variables(environ, read) for environ in places.values()):
            read |= {option.variable for option in _options_of_all_plugins().values()}
        return [
            f"{place.format(name)} is set, but no setting reads it{suggestion(name, read)}"
            for place, environ in places.items()
            for name in unknown_variables(environ, read)
        ]

    def _from_mapping(self, values: Mapping[str, Any] | None, origin: str) -> list[Entry]:
        return [Entry(key, raw, origin, self.cwd) for key, raw in given(values).items()]

    def _from_text(self, text: str) -> Entry:
        key, equals, raw = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {shown(text)}: expected key=value, such as --set device=1",
                name="--set",
                value=text,
                expected="key=value",
                origin="--set",
            )
        return Entry(key.strip(), raw.strip(), "--set", self.cwd)

    def _from_variables(
        self, known: Mapping[str, Option], environ: Mapping[str, str], origin: str
    ) -> list[Entry]:
        """Read the variables of the known options; an empty variable counts as not set."""
        return [
            Entry(key, environ[option.variable], f"{origin} {option.variable}", self.cwd)
            for key, option in known.items()
            if environ.get(option.variable)
        ]


def _load(sources: _Sources, options: Iterable[Option]) -> Config:
    known = _table((*core_options(sources.environ), *options))
    settings = sources.merge(known, tolerant=False)
    for family in _FAMILIES:
        settings[family] = _resolve_alias(settings[family])
    config = Config(settings.values(), sources.warnings(known))
    check_plugin_names(config)
    return config


def check_plugin_names(config: Config) -> None:
    """Raise PluginError if a setting names a plugin of a Worker that is not installed.

    A missing default is no error here: the run that needs it raises one.
    """
    from pto_core.plugins import find

    for setting in config.settings():
        is_default = setting.origin == "default" or setting.value is None
        if setting.key in _NAMES and not is_default:
            find(_NAMES[setting.key], setting.value)


def _table(options: Iterable[Option]) -> dict[str, Option]:
    table: dict[str, Option] = {}
    for option in options:
        if option.key in table:
            raise ConfigError(
                f"setting {option.key!r} is declared by two plugins; choose another backend or "
                "runtime",
                name=option.key,
            )
        table[option.key] = option
    return table


def _ignore_or_refuse(entry: Entry, known: Mapping[str, Option], *, shared: bool) -> None:
    """Ignore a key of a plugin that is not chosen if it is in a shared source; otherwise raise."""
    others = _options_of_all_plugins() if "." in entry.key else {}
    if entry.key not in others:
        raise unknown_setting(entry.key, {**others, **known}, entry.origin)
    if not shared:
        why = ": it belongs to a plugin that is not the chosen backend or runtime"
        raise unknown_setting(entry.key, known, entry.origin, why)


def _options_of_all_plugins() -> Mapping[str, Option]:
    """Return the options of all plugins. Imports all plugins, so it is called only for messages."""
    from pto_core import plugins

    return plugins.options_of_all()


def _installed_default(setting: Setting) -> Setting:
    """Replace a default that is not installed by the only installed plugin of its family."""
    from pto_core.plugins import default_name

    if setting.origin != "default":
        return setting
    name = default_name(setting.key, setting.value)
    if name == setting.value:
        return setting
    return replace(setting, value=name, origin=f"default, the only installed {setting.key}")


def _resolve_alias(setting: Setting) -> Setting:
    from pto_core import plugins

    name = plugins.canonical_name(setting.key, setting.value)
    if name == setting.value:
        return setting
    return replace(setting, value=name, origin=f"{setting.origin}, alias {setting.value!r}")


_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([\w.\-"' ]+?)\s*=""")


@dataclass(frozen=True)
class _File:
    path: Path
    shown: str
    """The path in messages: relative to the current folder."""
    text: str


def file_entries(cwd: Path) -> list[Entry]:
    """Return the entries of the nearest settings file; an empty list if there is none."""
    for folder in (cwd, *cwd.parents):
        own = _read(folder / "pto.toml", cwd)
        if own is not None:
            _check_trust(own)
            return _entries(own, _parse(own), prefix="")
        shared = _read(folder / "pyproject.toml", cwd)
        if shared is not None and "tool.pto" in shared.text:
            _check_trust(shared)
            table = _parse(shared).get("tool", {}).get("pto")
            if table is not None:
                return _entries(shared, table, prefix="tool.pto.")
    return []


def _read(path: Path, cwd: Path) -> _File | None:
    try:
        if not path.is_file():
            return None
    except PermissionError:  # a folder that this user cannot search has no settings for this user
        return None
    shown = os.path.relpath(path, cwd)
    try:
        return _File(path, shown, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown} cannot be read: {error}", origin=shown) from None


def _check_trust(file: _File) -> None:
    reason = reason_for_distrust(file.path)
    if reason is not None:
        raise ConfigError(
            f"the settings file {file.shown} is not used: {reason}",
            value=str(file.path),
            origin=file.shown,
        )


def _parse(file: _File) -> dict[str, Any]:
    try:
        return tomllib.loads(file.text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{file.shown}:{line[1]}" if line else file.shown
        raise ConfigError(f"{where} is not valid TOML: {error}", origin=where) from None


def _entries(file: _File, table: Mapping[str, Any], prefix: str) -> list[Entry]:
    lines = _lines_of_keys(file.text)

    def origin(key: str) -> str:
        line = lines.get(prefix + key)
        return f"{file.shown}:{line}" if line else file.shown

    flat = _flatten(table, "")
    return [Entry(key, raw, origin(key), file.path.parent) for key, raw in flat]


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _lines_of_keys(text: str) -> dict[str, int]:
    """Find the line number of each ``key =``, because tomllib does not report line numbers.

    The result may be wrong, because a multi-line text can contain a line that looks like a key. It
    is used only in messages.
    """
    lines: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = _plain(header[1]) + "."
        elif key := _KEY.match(line):
            lines.setdefault(table + _plain(key[1]), number)
    return lines


def _plain(key: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in key.split("."))


# Published variable names whose settings belong to plugins. No warning is issued for them, even if
# the plugin is not installed.
PUBLISHED = frozenset(
    {
        "PTO_AICPU_BUILD_GRAPH_BUILD_MODE",
        "PTO2_READY_QUEUE_SHARDS",
        "PTO2_RING_DEP_POOL",
        "PTO2_RING_HEAP",
        "PTO2_RING_TASK_WINDOW",
    }
)

# Variables that the golden.py of an example reads, with their meanings. They are no settings.
EXAMPLE_VARIABLES = {
    "PA_CASE": "case of 06_batch_paged_attention that runs without --case",
    "PA_SEQ_LEN": "lengths of its sequences, separated by commas, in place of those of the case",
}


def working_folder() -> Path:
    """Return the working folder of this process; raise UsageError if it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "the working folder of this process was removed; change to a folder that exists",
            name="cwd",
        ) from None


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def child_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a copy of this environment with ``changes``, for a child process.

    The environment of this process does not change.
    """
    return {**os.environ, **(changes or {})}


def adopt_environment(changes: Mapping[str, str]) -> None:
    """Set variables of this process. Only a child that runs one case may call this function."""
    os.environ.update(changes)


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """List the variables that start with ``PTO_`` or ``PTO2_`` and that no option reads."""
    expected = PUBLISHED | set(known)
    ours = (name for name in environ if name.startswith(("PTO_", "PTO2_")))
    return sorted(name for name in ours if name not in expected)
