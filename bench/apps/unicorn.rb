# Settings of Unicorn.
worker_processes ENV.fetch("BENCH_WORKERS").to_i
pid ENV.fetch("BENCH_PIDFILE") unless ENV.fetch("BENCH_PIDFILE").empty?
preload_app true
