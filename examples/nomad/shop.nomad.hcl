# A job for Nomad. Not run here: its command and times are checked against the server, the rest is by Nomad's documentation.
#
#   nomad job run shop.nomad.hcl

job "shop" {
  group "app" {
    count = 3

    network {
      port "http" { to = 8000 }
      port "admin" { to = 8299 }
    }

    # One new instance must be healthy before the old ones are replaced, one after the other.
    update {
      max_parallel     = 1
      canary           = 1
      auto_promote     = true
      auto_revert      = true
      health_check     = "checks"
      min_healthy_time = "5s"
      healthy_deadline = "3m"
    }

    # On different hosts, where there are enough.
    spread { attribute = "${node.unique.id}" }

    service {
      name     = "shop"
      port     = "http"
      provider = "nomad"
      # Fails while the server starts, drains, or has no worker; never for a long line.
      check {
        type     = "http"
        port     = "admin"
        path     = "/ready"
        interval = "3s"
        timeout  = "2s"
      }
    }

    service {
      name     = "shop-admin"
      port     = "admin"
      provider = "nomad"
      # Whether the acceptor's loop goes round; only this restarts the task.
      check {
        type     = "http"
        path     = "/live"
        interval = "10s"
        timeout  = "5s"
        check_restart {
          limit = 3
          grace = "120s"
        }
      }
    }

    task "app" {
      driver      = "docker"
      kill_signal = "SIGTERM"
      # Longer than --drain-delay and --graceful-timeout; a client allows max_kill_timeout, 30 s by default.
      kill_timeout = "30s"

      config {
        image = "registry.example/shop:1" # examples/docker/Dockerfile
        ports = ["http", "admin"]
        # Behind stanchion serve, the image's entry point. A balancer learns of a stop some seconds late: the server accepts
        # for so long, in place of shutdown_delay.
        args = [
          "--interface=wsgi",
          "--bind=0.0.0.0:8000",
          "--admin=0.0.0.0:8299",
          "--workers=2",
          "--drain-delay=5",
          "--graceful-timeout=20",
          "--keep-alive=75",
          "shop:app",
        ]
        readonly_rootfs = true
        cap_drop        = ["all"]
        security_opt    = ["no-new-privileges"]
        mount {
          type   = "tmpfs"
          target = "/tmp"
          tmpfs_options { size = 1073741824 }
        }
      }

      resources {
        cpu    = 1000
        memory = 512
      }
    }
  }
}
