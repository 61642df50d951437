"""Step time against the latency of the links between hosts: RingZero's rules and FSDP2."""
