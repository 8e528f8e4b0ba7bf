"""Creates what benchmarks measure: log lines, clusters, faults and situations. Measures nothing.

The output is the same for the same seed.
"""
