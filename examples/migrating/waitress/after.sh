exec stanchion serve --bind=127.0.0.1:8000 --threads=8 --root-path=/shop \
    --forwarded-allow-ips=127.0.0.1 \
    --keep-alive=120 --max-connections=1000 --limit-request-body=16M --backlog=1024 shop:app
