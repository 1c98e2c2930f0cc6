"""What the bytes of a RocketMQ store mean: pure functions on buffers, without any I/O.

One module for each thing that is stored; the pages of ``docs/format/`` say the same in words, with examples that tests
read with these functions.
"""
