"""Witnesses beside the client: the kernel, the servers' logs, the scheduler. Each gives figures."""
