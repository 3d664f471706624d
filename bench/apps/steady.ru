# steady.py for Unicorn.
run lambda { |_env|
  began_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  sleep 0.020
  sleep 0.005 while File.exist?(ENV.fetch("BENCH_STALL", ""))
  body = "#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - began_ns}\n"
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
}
