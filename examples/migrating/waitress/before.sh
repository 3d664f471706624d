exec waitress-serve --listen=127.0.0.1:8000 --threads=8 --url-prefix=/shop --ident=shop \
    --trusted-proxy=127.0.0.1 --trusted-proxy-headers="x-forwarded-for x-forwarded-proto" \
    --channel-timeout=120 --connection-limit=1000 --max-request-body-size=16777216 --backlog=1024 shop:app
