#!/usr/bin/env bash
# Compare stanchion with its peers; --help tells what can be chosen. Results go to bench/runs/.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin # where nginx and ip are, also for those who do not look there

bench/setup.sh

# A network namespace of its own where the kernel lets us: nothing but this run's loopback can be reached, no firewall
# rule of the host is in the way, and there are ports enough for a connection per request.
# shellcheck disable=SC2016
inside='ip link set lo up && echo 1024 65535 >/proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
run=(.venv-bench/bin/python -m bench "$@")
for namespace in "unshare --net" "unshare --net --user --map-root-user"; do
    if $namespace ip link set lo up 2>/dev/null; then
        BENCH_NAMESPACE=1 exec $namespace sh -c "$inside" sh "${run[@]}"
    fi
done
exec "${run[@]}"
