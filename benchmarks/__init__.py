"""Measurements. Each figure is compared with a floor or a peer that is measured in the same run.

``python -m benchmarks`` prints all figures and writes JSON; ``python -m benchmarks --help`` lists
the options. No figure is a test: the machines are shared, so judge a figure by its ratio, not by
its time.
"""
