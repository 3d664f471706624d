//! The planner for Python: it reads recordings from disk, and Python sees how far it is and can stop it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use stanchion_arrivals::{ArrivalFile, DIRECTORY_BYTES, FILE_NAME, is_file_name};
use stanchion_plan::{NoAnswer, PlanRequest, PlanSource, SeenTraffic, plan};
use stanchion_sys::clock::monotonic_us;

/// Python learns so seldom how far the planner is, in microseconds.
const REPORT_US: u64 = 100_000;
/// A recording is read up to here. Two servers may have written to one directory, or an operator may have gathered files of several.
const RECORDING_BYTES_MAX: u64 = 8 * DIRECTORY_BYTES;

/// Answers a question, a JSON object, with a JSON object. An error of `progress`, or of a signal handler, ends it.
pub(crate) fn answer(
    py: Python<'_>,
    question: &str,
    progress: Option<&Py<PyAny>>,
) -> PyResult<String> {
    let mut raised = None;
    let mut due_us = monotonic_us();
    let mut report = |share: f64| {
        let now_us = monotonic_us();
        if now_us < due_us {
            return true;
        }
        due_us = now_us + REPORT_US;
        let reported = Python::attach(|py| {
            if let Some(progress) = progress {
                progress.call1(py, (share,))?;
            }
            py.check_signals()
        });
        reported.map_err(|error| raised = Some(error)).is_ok()
    };
    let answer = py.detach(|| {
        let wrong = NoAnswer::Wrong;
        let mut request = PlanRequest::read(question).map_err(wrong)?;
        let source = request.take_source().map_err(wrong)?;
        let source = PlanSource::of(source, |path| recording(Path::new(path))).map_err(wrong)?;
        let answer = plan(&request, source, &mut report)?;
        answer.to_json().map_err(wrong)
    });
    answer.map_err(|none| match (none, raised) {
        (_, Some(error)) => error,
        (NoAnswer::Wrong(why), None) => PyValueError::new_err(why),
        (NoAnswer::Stopped, None) => PyValueError::new_err("the planner was stopped"),
    })
}

/// Reads a recording: a file, or all of a directory.
fn recording(path: &Path) -> Result<SeenTraffic, String> {
    let cannot = |path: &Path, why: &dyn std::fmt::Display| {
        format!("{} cannot be read: {why}", path.display())
    };
    let paths = if path.is_dir() {
        files_of(path).map_err(|error| cannot(path, &error))?
    } else {
        vec![path.to_owned()]
    };
    let mut bytes_read = 0;
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for path in paths {
        let bytes = match fs::metadata(&path) {
            // To open a pipe waits for its writer, and a device has no end.
            Ok(about) if !about.is_file() => {
                return Err(cannot(&path, &"it is no regular file"));
            }
            Ok(about) if bytes_read + about.len() > RECORDING_BYTES_MAX => {
                return Err(cannot(
                    &path,
                    &format!("a recording has at most {} MB", RECORDING_BYTES_MAX >> 20),
                ));
            }
            Ok(about) => read_up_to(&path, about.len()),
            Err(error) => Err(error),
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            // The server has removed its oldest file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !files.is_empty() => continue,
            Err(error) => return Err(cannot(&path, &error)),
        };
        bytes_read += bytes.len() as u64;
        match ArrivalFile::read(&bytes) {
            Ok(file) => files.push(file),
            Err(error) => left_out.push(cannot(&path, &error)),
        }
    }
    if files.is_empty() {
        if let Some(first) = left_out.into_iter().next() {
            return Err(first);
        }
        let (begin, end) = FILE_NAME;
        return Err(format!(
            "{} has no recording: no file is named {begin}…{end}",
            path.display()
        ));
    }
    let mut traffic = SeenTraffic::recorded(&files);
    traffic
        .notes
        .extend(left_out.into_iter().map(|why| format!("{why}.")));
    Ok(traffic)
}

/// The first bytes of a file.
fn read_up_to(path: &Path, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The files of a recording in this directory, the oldest first.
fn files_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_file_name) {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}
