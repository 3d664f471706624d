-- The requests of wrk, and one line of JSON with what it saw. Arguments after `--`: the bytes of a body to POST (0 for a GET).

function init(args)
  local body_bytes = tonumber(args[1])
  if body_bytes > 0 then
    wrk.method = "POST"
    wrk.headers["Content-Type"] = "application/octet-stream"
    wrk.body = string.rep("x", body_bytes)
  end
  -- A table cannot be extended once it was formatted, so the request is made here, once.
  local formatted = wrk.format()
  request = function() return formatted end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    'RESULT {"requests": %d, "bytes": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d,'
      .. ' "connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d}',
    summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
