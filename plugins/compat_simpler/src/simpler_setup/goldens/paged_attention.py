"""Not available: the arguments of these functions are not documented."""

from pto_compat_simpler.missing import missing

__getattr__ = missing(__name__, "write the reference in compute_golden of the scene test")
