//! Settings of the app: where it is, and how to look at it without serving it.

use super::{Group, Kind, OPTIONAL, OnReload, Preset, Setting, without_nul};

pub(super) const APP: Group = Group {
    title: "App",
    settings: &[
        Setting {
            name: "wsgi_app",
            flags: &[],
            metavar: "",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "The app, if not named as APP",
            long_help: "\
MODULE:NAME, MODULE:FACTORY() with literal arguments, or MODULE alone, \
which means MODULE:application or, if there is none, MODULE:app. The \
argument APP of the command line wins.",
        },
        Setting {
            name: "config",
            flags: &["-c", "--config"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Python file with settings",
            long_help: "\
A file whose variables have the names of settings; python:MODULE reads \
a module. Without it stanchion.conf.py is read, or else \
gunicorn.conf.py, if the working directory has one.",
        },
        Setting {
            name: "paste",
            flags: &["--paste", "--paster"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Load the app from a PasteDeploy file",
            long_help: "\
An INI file, and after a # the name of an app in it, as in \
production.ini#admin; without a name it is main. The path is relative to \
where the server is started, not to chdir. PasteDeploy must be installed \
(pip install PasteDeploy). It wins over APP. The sections of the file that \
describe a server are not read, as in gunicorn.",
        },
        Setting {
            name: "raw_paste_global_conf",
            flags: &["--paste-global"],
            metavar: "KEY=VALUE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: variable,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Add to the defaults of --paste (repeatable)",
            long_help: "\
A variable for the app that --paste loads, beside those of the file's \
DEFAULT section. An = in the name is written \\=. May be repeated.",
        },
        Setting {
            name: "spew",
            flags: &["--spew"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Print each line of Python that runs",
            long_help: "\
For debugging: each line that the app runs, also while it is imported, is \
printed on standard output, as MODULE:LINE: SOURCE. It makes the app slower \
by far. The server itself is not written in Python and does not show.",
        },
        Setting {
            name: "check_config",
            flags: &["--check-config"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Import the app, say what is wrong, exit",
            long_help: "\
As in gunicorn: nothing is served. The exit code is 0 if the app could be \
served, 1 if it cannot be loaded, and 2 if a setting is wrong. \
`stanchion check --load` does the same and shows the settings; it ends \
with 4 if the app cannot be loaded, as `serve` does.",
        },
        Setting {
            name: "print_config",
            flags: &["--print-config"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Print all settings, then as --check-config",
            long_help: "\
One line for each setting, in alphabetical order: NAME = VALUE. Values that \
look like secrets are not shown. `stanchion check` also says where each \
value came from.",
        },
    ],
};

/// `KEY=VALUE`, as gunicorn takes it apart: at the first `=` without a backslash before it.
fn variable(text: &str) -> Result<(), String> {
    let unescaped = |at: usize| !text[..at].ends_with('\\');
    if text.match_indices('=').any(|(at, _)| unescaped(at)) {
        without_nul(text)
    } else {
        Err("it is written KEY=VALUE".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_name_and_a_value() {
        for good in ["a=b", "a=", "a\\=b=c", "=b"] {
            assert!(variable(good).is_ok(), "{good}");
        }
        for bad in ["", "a", "a\\=b", "a=\0"] {
            assert!(variable(bad).is_err(), "{bad}");
        }
    }
}
