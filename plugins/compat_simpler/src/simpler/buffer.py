"""Not available: buffers that processes pass to each other are those of ``Worker``."""

from pto_compat_simpler.missing import missing

__getattr__ = missing(__name__, "use create_buffer or alloc_shared_tensor of a Worker of level 3")
