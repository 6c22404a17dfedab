"""Merge the sources of settings into one record; a stronger source overrides a weaker source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pto_core.config.environment import (
    process_environment,
    unknown_variables,
    working_folder,
)
from pto_core.config.files import file_entries
from pto_core.config.options import core_options
from pto_core.config.record import Config
from pto_core.config.setting import (
    Entry,
    Setting,
    given,
    read_setting,
    unknown_setting,
)
from pto_core.errors import ConfigError
from pto_core.errors.suggestion import suggestion
from pto_core.errors.values import shown
from pto_core.interfaces.plugin import Option

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

    A default may be missing: the run that needs it reports that.
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
