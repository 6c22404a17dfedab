"""Six programs in Python, on pto and on three other systems, each in the words of its system.

``work`` has the functions that run in the processes. Every other module has a context manager
``pool``, which starts two processes, and a function of the pool for each program.
"""
