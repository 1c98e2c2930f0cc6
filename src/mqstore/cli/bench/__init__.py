"""``mqstore bench``: the benchmarks, one module each."""
