//! The server without Python: the same process tree, line and exchange around an app in Rust.
//!
//! `cargo run --release -p stanchion-server --example hello`, then
//! `curl -i http://127.0.0.1:8000/any/path`. Ctrl-C ends it.

use std::io;

use stanchion_record::{AnswerHead, RequestBuffer};
use stanchion_server::{
    AnswerEnd, Fork, Gone, Host, Launcher, NotLoaded, Seat, StartedAs, Taken, Worker,
};
use stanchion_settings::Settings;
use stanchion_sys::adoption;
use stanchion_sys::process;

/// Answers every request with its method, its target and how long it waited.
struct Hello;

fn answer(
    mut taken: Taken<'_>,
    buffer: &mut RequestBuffer,
    head: &mut AnswerHead,
) -> Result<(), Gone> {
    let mut has_body = true;
    let body = match buffer.read(&taken) {
        Ok(request) => {
            has_body = request.method != b"HEAD";
            format!(
                "{} {}, after {} µs in the line\n",
                String::from_utf8_lossy(request.method),
                String::from_utf8_lossy(request.target),
                taken.wait_us(),
            )
        }
        Err(bad) => format!("{bad}\n"),
    };
    head.begin(200, b"OK");
    head.field(b"Content-Type", b"text/plain; charset=utf-8");
    head.field(b"Content-Length", body.len().to_string().as_bytes());
    taken.write(head.whole(None))?;
    if has_body {
        taken.write(body.as_bytes())?;
    }
    taken.finish(AnswerEnd::Complete);
    Ok(())
}

fn pull(seat: &Seat<'_>) {
    let (mut buffer, mut head) = (RequestBuffer::default(), AnswerHead::default());
    while let Some(taken) = seat.wait() {
        // A client that has gone gets no answer.
        let _ = answer(taken, &mut buffer, &mut head);
        seat.served();
    }
}

impl Host for Hello {
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
        std::thread::scope(|scope| {
            for index in 1..worker.seats() {
                scope.spawn(move || worker.work(|| pull(&worker.seat(index))));
            }
            worker.work(|| pull(&worker.seat(0)));
        });
        Ok(())
    }

    fn started_as(&self) -> StartedAs {
        StartedAs {
            command: std::env::args_os().collect(),
            directory: std::env::current_dir().unwrap_or_default(),
        }
    }

    fn reconfigure(&mut self) -> Result<Settings, String> {
        settings()
    }
}

fn settings() -> Result<Settings, String> {
    let text = std::env::args()
        .nth(1)
        .unwrap_or_else(|| r#"{"workers": 2}"#.to_owned());
    Settings::from_json(&text).map_err(|error| error.to_string())
}

fn main() {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(problem) => {
            tracing::error!("{problem}");
            std::process::exit(stanchion_log::exit_code::USAGE);
        }
    };
    std::process::exit(stanchion_server::serve(
        settings,
        &mut Hello,
        Launcher::none(),
    ));
}
