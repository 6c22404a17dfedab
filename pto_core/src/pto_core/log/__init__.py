"""Logging: one event name per thing, fields beside it; text for people or JSON for machines.

::

    log = pto_core.log.get(__name__)
    log.info("kernel compiled", source=str(path), seconds=0.8)

structlog is imported with the first message that is shown; one below the level costs a comparison.
Everything goes to standard error. Nothing is logged per task.
"""

from pto_core.log.logger import Logger, configure, get

__all__ = ["Logger", "configure", "get"]
