"""Files as the store needs them, with no idea of messages.

Directories of equal-sized files named by their start offset, files that are mapped and allocated ahead, reading by
position through a bounded pool of descriptors, and every operation that has to reach the disk in order.
"""
