# Settings of Unicorn for the case `upgrade`.
worker_processes ENV.fetch("BENCH_WORKERS").to_i
pid ENV.fetch("BENCH_PIDFILE")
preload_app true
