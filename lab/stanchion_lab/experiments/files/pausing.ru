# pausing.py for Ruby's servers.
pause_s = ENV.fetch("PAUSE_MS", "20").to_f / 1e3
slow_s = ENV.fetch("SLOW_MS", "200").to_f / 1e3
run lambda { |env|
  sleep(env["PATH_INFO"] == "/slow" ? slow_s : pause_s)
  sleep 0.005 while File.exist?("stall")
  [200, { "content-type" => "text/plain", "content-length" => "3", "x-worker" => Process.pid.to_s }, ["ok\n"]]
}
