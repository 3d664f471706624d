worker_processes 2
working_directory "/srv/shop"
listen "/run/shop/shop.sock", backlog: 64, umask: 0007
listen "127.0.0.1:8080", tcp_nodelay: true
timeout 30
pid "/run/shop/shop.pid"
stderr_path "/var/log/shop/error.log"
stdout_path "/var/log/shop/output.log"
preload_app true
check_client_connection false

before_fork do |server, worker|
  # After USR2: the new master sends the old one away.
  old = "#{server.config[:pid]}.oldbin"
  if File.exist?(old) && server.pid != old
    begin
      Process.kill(:QUIT, File.read(old).to_i)
    rescue Errno::ENOENT, Errno::ESRCH
    end
  end
end

after_fork do |server, worker|
  server.listen("127.0.0.1:#{9293 + worker.nr}", tries: -1, delay: 5)
end
