"""Logging: one event name per event type, with fields; as readable text or JSON.

::

    log = pto_core.log.get(__name__)
    log.info("kernel compiled", source=str(path), seconds=0.8)

structlog is imported with the first message that is shown; a message below the level costs a
comparison. All output goes to standard error. No message is logged per task. Commands write their
other messages to standard error with :func:`show` and :func:`relay`, which keep the format.
"""

from pto_core.log.logger import Logger, configure, get, is_json, relay, show

__all__ = ["Logger", "configure", "get", "is_json", "relay", "show"]
