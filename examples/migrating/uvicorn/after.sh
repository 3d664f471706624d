exec stanchion serve --bind=127.0.0.1:8000 --workers=2 --root-path=/api --interface=asgi --lifespan=on \
    --forwarded-allow-ips=127.0.0.1 --worker-concurrency=100 --max-waiting=500 --backlog=1024 \
    --keep-alive=10 --graceful-timeout=20 --max-requests=10000 --access-logfile=- api:app
