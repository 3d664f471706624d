exec uvicorn api:app --host 127.0.0.1 --port 8000 --workers 2 --root-path /api --lifespan on \
    --proxy-headers --forwarded-allow-ips 127.0.0.1 --limit-concurrency 500 --backlog 1024 \
    --timeout-keep-alive 10 --timeout-graceful-shutdown 20 --limit-max-requests 10000
