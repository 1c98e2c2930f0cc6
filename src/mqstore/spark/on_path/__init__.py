"""A directory for the search path of Spark's workers. Nothing in it needs this package, which they may not find."""
