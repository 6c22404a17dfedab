"""The logger of programs."""

import logging


def get_logger(name: str = "simpler") -> logging.Logger:
    """Return the logger of the module ``logging`` with this name."""
    return logging.getLogger(name)
