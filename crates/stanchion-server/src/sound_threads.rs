//! Threads that the import of an app may leave and that a fork does no harm to, as their library sees to it itself: the one list of them.
//! `docs/what-survives-a-fork.md` has the same table, and `tests/process/test_libraries_that_survive_a_fork.py` computes with the
//! libraries before and after forks.

use std::path::Path;

/// The threads of one library.
#[derive(Debug)]
struct Sound {
    /// Its name in the docs.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "for the docs, which a test compares")
    )]
    library: &'static str,
    by: Mark,
    /// Why a worker is none the worse for not having them.
    #[cfg_attr(
        not(test),
        allow(dead_code, reason = "for the docs, which a test compares")
    )]
    reason: &'static str,
}

/// How a thread is recognized. Only threads that Python knows nothing of are.
#[derive(Debug)]
enum Mark {
    /// It was started for code in a file whose name has this in it.
    File(&'static str),
    /// The library has given it this name (`pthread_setname_np(3)`).
    Name(&'static str),
}

const SOUND: [Sound; 2] = [
    Sound {
        library: "OpenBLAS, of NumPy and SciPy",
        by: Mark::File("openblas"),
        reason: "it ends its threads before each fork (`pthread_atfork`), and starts them again when it next computes, in parent and child",
    },
    Sound {
        library: "jemalloc, of PyArrow",
        by: Mark::Name("jemalloc_bg_thd"),
        reason: "its handlers of `pthread_atfork` hold its locks during a fork; in the child it goes on without the thread, and gives memory back when it is called",
    },
];

/// Whether this thread, of that name and started for code in that file, is no matter for a fork.
pub(crate) fn is_sound(name: &str, file: Option<&Path>) -> bool {
    let file = file
        .and_then(Path::file_name)
        .map(|file| file.to_string_lossy());
    SOUND.iter().any(|sound| match sound.by {
        Mark::File(part) => file.as_ref().is_some_and(|file| file.contains(part)),
        Mark::Name(known) => name == known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_its_code_or_by_the_name_that_its_library_gave_it() {
        let openblas = Path::new("/venv/numpy.libs/libscipy_openblas64_-fdde5778.so");
        assert!(is_sound("stanchion-tmpl", Some(openblas)));
        assert!(is_sound("jemalloc_bg_thd", None));
        for (name, file) in [
            ("stanchion-tmpl", None),
            ("openblas", None),
            ("python3", Some("/venv/openblas/libother.so")),
            ("rdk:main", Some("/venv/librdkafka.so.1")),
        ] {
            assert!(!is_sound(name, file.map(Path::new)), "{name} {file:?}");
        }
    }

    #[test]
    fn the_docs_have_the_same_list() {
        let docs = include_str!("../../../docs/what-survives-a-fork.md");
        for Sound {
            library, reason, ..
        } in &SOUND
        {
            let row = docs
                .lines()
                .find(|line| line.starts_with(&format!("| {library} |")));
            let row = row.unwrap_or_else(|| panic!("no row for {library}"));
            assert!(row.to_lowercase().contains(&reason.to_lowercase()), "{row}");
        }
    }
}
