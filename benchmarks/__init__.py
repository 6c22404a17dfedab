"""Measurements: each figure beside a floor or a peer taken in the same run.

``python -m benchmarks`` prints them all and writes JSON; ``python -m benchmarks --help`` lists
the rest. Nothing here is a test: the machines are shared, so a figure decides by its ratio, not by
its time.
"""
