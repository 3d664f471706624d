# released.py for Unicorn.
sleep 0.5
body = File.binread(ENV.fetch("BENCH_RELEASE"))
run lambda { |_env|
  sleep 0.005
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
}
