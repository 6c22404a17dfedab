"""The module ``simpler`` of the published runtime, over ptorun: what published programs import.

Raises ImportError if another distribution has a module of this name too, because the two would be
mixed.
"""

from importlib.metadata import packages_distributions

_OWN = "ptorun-compat-simpler"
_others = {*packages_distributions().get("simpler", ())} - {_OWN}
if _others:
    raise ImportError(
        f"the distribution {', '.join(sorted(_others))} has a module named 'simpler', too; "
        f"uninstall it or {_OWN}"
    )
