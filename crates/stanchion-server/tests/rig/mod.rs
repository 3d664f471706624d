//! For tests of a whole server whose app is in Rust: this program tests itself if it is started without arguments, and
//! is the server if it is started with settings.

use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use stanchion_server::{Fork, Host, Launcher, NotLoaded, Seat, StartedAs, Taken, Worker};
use stanchion_settings::Settings;
use stanchion_sys::adoption;
use stanchion_sys::process;

/// Bound of every wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Answers each request by this.
struct Answering(fn(Taken<'_>));

impl Answering {
    fn pull(&self, seat: &Seat<'_>) {
        while let Some(taken) = seat.wait() {
            self.0(taken);
            seat.served();
        }
    }
}

impl Host for Answering {
    fn load(&mut self, _settings: &Settings) -> Result<(), NotLoaded> {
        Ok(())
    }

    fn fork(&mut self) -> io::Result<Fork> {
        process::fork_single_threaded()
    }

    fn fork_worker(&mut self) -> io::Result<Fork> {
        adoption::fork_single_threaded_for_subreaper()
    }

    fn serve(&mut self, worker: &'static Worker) -> Result<(), String> {
        let host = &*self;
        std::thread::scope(|scope| {
            for index in 1..worker.seats() {
                scope.spawn(move || worker.work(|| host.pull(&worker.seat(index))));
            }
            worker.work(|| host.pull(&worker.seat(0)));
        });
        Ok(())
    }

    fn started_as(&self) -> StartedAs {
        StartedAs {
            command: std::env::args_os().collect(),
            directory: PathBuf::from("."),
        }
    }

    fn reconfigure(&mut self) -> Result<Settings, String> {
        Err("not here".to_owned())
    }
}

/// A server that is killed with the test.
pub(crate) struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it has ended there is no process to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// With one worker of so many seats.
    pub(crate) fn start(threads: u16) -> Self {
        let settings = format!(r#"{{"workers": 1, "threads": {threads}, "bind": "127.0.0.1:0"}}"#);
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .arg(settings)
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let log = BufReader::new(process.stderr.take().expect("a pipe"));
        Self { process, log }
    }

    /// Reads the log up to a line with this in it, which it gives. Ends with the server.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        while self.log.read_line(&mut line).expect("a log") > 0 {
            if line.contains(wanted) {
                return line;
            }
            line.clear();
        }
        panic!("the log ended without {wanted:?}");
    }

    /// Waits until it serves; gives its address.
    pub(crate) fn ready(&mut self) -> String {
        let line = self.wait_for("listening at http://");
        let address = line.trim().rsplit("http://").next().expect("an address");
        self.wait_for("ready: 1 worker");
        address.to_owned()
    }

    /// Tells it to leave, and sees it go.
    pub(crate) fn leave(mut self) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        process::kill(pid, stanchion_sys::signal::SIGTERM).expect("told to leave");
        self.wait_for("stanchion leaves");
        assert!(self.process.wait().expect("its end").success());
    }
}

/// The body of `main`.
pub(crate) fn run(answer: fn(Taken<'_>), test: impl FnOnce()) {
    let first = std::env::args().nth(1).unwrap_or_default();
    if first.starts_with('{') {
        let settings = Settings::from_json(&first).expect("settings");
        std::process::exit(stanchion_server::serve(
            settings,
            &mut Answering(answer),
            Launcher::none(),
        ));
    }
    std::thread::spawn(|| {
        std::thread::sleep(3 * PATIENCE);
        std::process::exit(1);
    });
    test();
}
