#!/usr/bin/env bash
# Set up the benchmark's needs: distribution packages (only as root), .venv-bench with the peers, and the newest
# wheel of stanchion. Parts that are there already are left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv-bench/bin/python
[[ -x $python ]] || scripts/make-venv "${PYTHON:-python3}" .venv-bench

packages=(wrk=wrk h2load=nghttp2-client nginx=nginx-light taskset=util-linux ip=iproute2 cc=gcc unicorn=unicorn)
# Headers have no command; a name that is none makes scripts/system-packages install their packages.
[[ -e /usr/include/ev.h ]] || packages+=(ev.h=libev-dev)
include=$($python -c 'import sysconfig; print(sysconfig.get_path("include"))')
[[ -e $include/Python.h ]] || packages+=(Python.h=python3-dev)
scripts/system-packages "${packages[@]}"

pip=($python -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --require-hashes --requirement bench/requirements.txt
# A peer and its hashes are one line that backslashes continue.
while read -r peer; do
    "${pip[@]}" --no-deps --require-hashes --requirement <(sed -n "/^$peer /,/[^\\]\$/p" bench/peers.txt) ||
        echo "bench: MISSING PEER: $peer could not be installed" >&2
done < <(grep -o '^[a-z][^ ]*' bench/peers.txt)

shopt -s nullglob
wheels=(dist/stanchion-*.whl target/wheels/stanchion-*.whl)
if [[ ${#wheels[@]} -eq 0 ]]; then
    echo "bench: MISSING: no wheel of stanchion in dist/ or target/wheels/; make wheel builds one" >&2
else
    newest=$(ls -t "${wheels[@]}" | head -n 1)
    echo "bench: stanchion from $newest"
    "${pip[@]}" --no-deps --force-reinstall "$newest"
fi
