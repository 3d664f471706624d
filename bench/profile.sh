#!/usr/bin/env bash
# Where the CPU time of a server goes, by perf; --help tells what can be chosen.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/usr/sbin:/sbin

scripts/system-packages perf=linux-perf
bench/setup.sh
exec .venv-bench/bin/python -m bench.profiling "$@"
