"""``mqstore kafka``: the commands for Kafka's segment layout, one module each."""
