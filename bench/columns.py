"""The figures of a cell that the tables show, and how."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    digits: int = 1
    # Whether it is also shown as a multiple of stanchion's.
    ratio: bool = False


LOAD_COLUMNS = (
    Column("cpu_us", "CPU µs/request", 2, ratio=True),
    Column("user_us", "user", 2),
    Column("kernel_us", "kernel", 2),
    Column("rps", "requests/s", 0, ratio=True),
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
)
HOST_COLUMNS = (
    Column("host_cpu_us", "CPU µs/request of the host", 2, ratio=True),
    Column("rps", "requests/s", 0, ratio=True),
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
)
HANDSHAKE_COLUMNS = (
    Column("cpu_us", "CPU µs/connection", 1, ratio=True),
    Column("user_us", "user", 1),
    Column("kernel_us", "kernel", 1),
    Column("p50_ms", "p50 ms", 2),
    Column("p99_ms", "p99 ms", 2),
    Column("resumed", "resumed", 2),
)
DEPLOY_COLUMNS = (
    Column("p50_ms", "p50 ms", 0, ratio=True),
    Column("max_ms", "longest ms", 0),
    Column("requests", "answered", 0),
)
KIND_COLUMNS = (
    Column("served", "served", 0),
    Column("told", "told 503", 0),
    Column("gateway", "502/504", 0),
    Column("refused", "not connected", 0),
    Column("broken", "reset", 0),
    Column("late", "no answer", 0),
)
MESSAGE_COLUMNS = (
    Column("cpu_us", "CPU µs/message", 2, ratio=True),
    Column("user_us", "user", 2),
    Column("kernel_us", "kernel", 2),
    Column("rps", "messages/s", 0, ratio=True),
)
MEMORY_COLUMNS = (
    Column("pss_kb", "KB each", 2, ratio=True),
    Column("anonymous_kb", "of it no file's", 2),
)
PRELOAD_COLUMNS = (
    Column("pss_mb", "PSS MB, garbage collected once in each", ratio=True),
    Column("fresh_mb", "PSS MB, fresh"),
)
MIXED_COLUMNS = (
    Column("to_ideal", "fast p99 / ideal", 2),
    Column("fast_p99_ms", "fast p99 ms", ratio=True),
    Column("ideal_p99_ms", "ideal fast p99 ms"),
    Column("fast_p50_ms", "fast p50 ms", 2),
    Column("slow_p99_ms", "slow p99 ms"),
)
OVERLOAD_COLUMNS = (
    Column("goodput", "goodput", 3),
    Column("p99_ms", "p99 ms", 0),
    Column("told_max_ms", "last told after ms", 0),
    *KIND_COLUMNS,
)
STALL_COLUMNS = (
    Column("goodput", "goodput", 3),
    Column("recovered_s", "none lost after s", 1),
    *KIND_COLUMNS,
)
ADVERSARY_COLUMNS = (
    Column("p99_ratio", "p99 beside / alone", 2),
    Column("p50_ratio", "p50 beside / alone", 2),
    Column("p99_ms", "p99 ms", 2),
    Column("alone_p99_ms", "alone", 2),
    Column("p50_ms", "p50 ms", 2),
    Column("alone_p50_ms", "alone", 2),
    Column("acceptor_s", "acceptor's CPU s each s", 3),
    Column("alone_acceptor_s", "alone", 3),
    Column("server_s", "server's CPU s each s", 3),
    Column("alone_server_s", "alone", 3),
    Column("pss_mb", "PSS MB"),
    Column("alone_pss_mb", "before"),
    Column("attack_mb", "attackers' MB"),
    Column("attack_connections", "their connections", 0),
)
