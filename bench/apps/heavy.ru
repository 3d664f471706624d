# heavy.py for Unicorn: 100 MB of small arrays, held since before the fork. /collect collects garbage first.
def resident_bytes
  File.read("/proc/self/statm").split[1].to_i * 4096
end

LIMIT = resident_bytes + 100_000_000
BALLAST = []
BALLAST.concat(Array.new(10_000) { |number| [number] }) while resident_bytes < LIMIT

run lambda { |env|
  GC.start if env["PATH_INFO"] == "/collect"
  sleep 0.02 unless env["PATH_INFO"] == "/"
  body = "#{Process.pid}\n"
  [200, { "content-type" => "text/plain", "content-length" => body.bytesize.to_s }, [body]]
}
