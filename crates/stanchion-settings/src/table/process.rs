//! Settings of the process and its surroundings.

use super::{Group, Kind, OPTIONAL, OnReload, Preset, Range, Setting, without_nul};
use crate::ControlAddress;

/// Bits that the mode of a socket file lacks by default: 0660 is left, so that owner and group may connect.
pub const UMASK: u32 = 0o117;

pub(super) const PROCESS: Group = Group {
    title: "Process",
    settings: &[
        Setting {
            name: "proc_name",
            flags: &["-n", "--name"],
            metavar: "NAME",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Name in process titles, not the app's",
            long_help: "\
ps and top show the role of each process and the app, such as \
stanchion: worker 0 [shop:app]. This name then stands in the brackets \
instead of the app's. The master's command line stands behind its title. \
A kernel without CONFIG_CHECKPOINT_RESTORE shows command lines as they \
are.",
        },
        Setting {
            name: "daemon",
            flags: &["-D", "--daemon"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| old.daemon != new.daemon),
            help: "Go into the background",
            long_help: "\
The command returns once the server serves, with exit code 0; or when it \
has failed to start, with the reason on standard error and its exit code. \
From then on standard output and error lead to /dev/null: give \
--error-logfile and --pid. Not for systemd, containers and supervisord, \
which watch the process that they start. See docs/daemon.md.",
        },
        Setting {
            name: "enable_stdio_inheritance",
            flags: &["-R", "--enable-stdio-inheritance"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| {
                old.enable_stdio_inheritance != new.enable_stdio_inheritance
            }),
            help: "Let a daemon keep its output files",
            long_help: "\
If the shell has sent a daemon's standard output and error to files or \
pipes, as in stanchion serve -D -R shop:app >out.log 2>&1, they stay. A \
terminal is replaced by /dev/null in any case.",
        },
        Setting {
            name: "pidfile",
            flags: &["-p", "--pid"],
            metavar: "FILE",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| old.pidfile != new.pidfile),
            help: "Write the master's process id to this file",
            long_help: "\
Written once the server listens, removed at the end. If it names a \
process that lives, the server does not start.",
        },
        Setting {
            name: "signals",
            flags: &["--signals"],
            metavar: "WHOSE",
            env: None,
            kind: Kind::Choice(&["gunicorn", "unicorn"]),
            default: Preset::Text("gunicorn"),
            gunicorn: false,
            on_reload: OnReload::Stays(|old, new| old.signals != new.signals),
            help: "Meanings of signals: gunicorn or unicorn",
            long_help: "\
gunicorn: TERM stops gracefully, QUIT at once. unicorn: QUIT stops \
gracefully, TERM at once, and TTOU goes down to no worker at all. See \
docs/reference/signals.md.",
        },
        Setting {
            name: "control",
            flags: &["--control"],
            metavar: "ADDRESS",
            env: None,
            kind: Kind::Text {
                nullable: true,
                check: control_address,
            },
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Stays(|old, new| old.control != new.control),
            help: "Take commands of `stanchion ctl` here",
            long_help: "\
unix:PATH, a unix socket of mode 0600 that the master listens on. Every user \
that can connect to it can stop the server. Without it there is no control \
socket.",
        },
        Setting {
            name: "user",
            flags: &["-u", "--user"],
            metavar: "USER",
            env: None,
            kind: Kind::Account,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Run the app as this user (as root only)",
            long_help: "\
A name or a number. The master stays root, to bind ports and to start \
processes again; the acceptor and all that runs the app become this user \
before they see the first byte of a client or of the app.",
        },
        Setting {
            name: "group",
            flags: &["-g", "--group"],
            metavar: "GROUP",
            env: None,
            kind: Kind::Account,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Run the app in this group (as root only)",
            long_help: "\
A name or a number. Without it, the group of user in the password database \
is taken.",
        },
        Setting {
            name: "initgroups",
            flags: &["--initgroups"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Add the user's other groups",
            long_help: "\
Gives the app all groups that the group database lists for user \
(initgroups(3)). Without it there is only group.",
        },
        Setting {
            name: "acceptor_user",
            flags: &["--acceptor-user"],
            metavar: "USER",
            env: None,
            kind: Kind::Account,
            default: Preset::Null,
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Run the acceptor as this user (root only)",
            long_help: "\
A name or a number that the password database knows, which gives the group \
too. The acceptor, which has the connections, then runs as this user, and \
the app as the user of `user`: an app that an attacker has broken into can \
neither stop the acceptor nor look into it, and does not see which bodies \
are in the spool. Without it both run as `user`. See docs/privileges.md.",
        },
        Setting {
            name: "worker_no_new_privs",
            flags: &["--worker-no-new-privs"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: false,
            on_reload: OnReload::Applies,
            help: "Let programs of the app gain no privileges",
            long_help: "\
Sets no_new_privs (prctl(2)) for the template and its workers, and, \
where the server is root, empties their capability bounding set. sudo, \
su and ping then do not work for the app, nor does any program whose file \
gives it another user or capabilities; which is why it is off unless asked \
for. The acceptor always runs like this. See docs/privileges.md.",
        },
        Setting {
            name: "umask",
            flags: &["-m", "--umask"],
            metavar: "MASK",
            env: None,
            kind: Kind::Octal(Range::between(0, 0o777)),
            default: Preset::Number(UMASK as u64),
            gunicorn: true,
            on_reload: OnReload::Stays(|old, new| old.umask != new.umask),
            help: "Umask for unix socket files",
            long_help: "\
As in gunicorn it counts for the files of unix sockets, whose mode is 0777 \
without these bits: by default 0660, so that only the owner and the group \
may connect (gunicorn's default is 0, which lets every user connect). The \
file of --admin has mode 0600, whatever this setting says. Files that the app \
writes follow the umask that the server was started with (UMask= of \
systemd). A number with a leading 0 or 0o is octal, any other decimal.",
        },
        Setting {
            name: "chdir",
            flags: &["--chdir"],
            metavar: "DIR",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Change to this directory before loading",
            long_help: "\
It also becomes the first place to import from. Relative paths of other \
settings are read from it; the config file is found before.",
        },
        Setting {
            name: "pythonpath",
            flags: &["--pythonpath"],
            metavar: "DIRS",
            env: None,
            kind: OPTIONAL,
            default: Preset::Null,
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Directories to import from, with commas",
            long_help: "\
Directories with commas between, put before the others that Python \
imports from.",
        },
        Setting {
            name: "raw_env",
            flags: &["-e", "--env"],
            metavar: "KEY=VALUE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: assignment,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Set an environment variable (repeatable)",
            long_help: "\
Set before the app is imported. May be repeated. The variables of the \
command line replace those of the config file.",
        },
        Setting {
            name: "reload",
            flags: &["--reload"],
            metavar: "",
            env: None,
            kind: Kind::Bool,
            default: Preset::Bool(false),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Reload when a source file changes",
            long_help: "\
For development. The files of loaded modules and the Python files below \
the working directory are watched, at most 10000 of these, and \
reload_extra_files.

The server looks at their times of change again and again. It uses no \
inotify watch, so this works on network and shared file systems too.",
        },
        Setting {
            name: "reload_engine",
            flags: &["--reload-engine"],
            metavar: "ENGINE",
            env: None,
            kind: Kind::Choice(&["auto", "poll", "inotify"]),
            default: Preset::Text("auto"),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "How to watch files: one way for all words",
            long_help: "\
gunicorn's words are accepted: auto, poll and inotify. Here they all mean \
the same: the server looks at the times of change of the files, as poll does \
in gunicorn. No package has to be installed for it.",
        },
        Setting {
            name: "reload_extra_files",
            flags: &["--reload-extra-file"],
            metavar: "FILE",
            env: None,
            kind: Kind::List {
                may_be_empty: true,
                check: without_nul,
                from_map: None,
            },
            default: Preset::List(&[]),
            gunicorn: true,
            on_reload: OnReload::Applies,
            help: "Watch this file too (repeatable)",
            long_help: "\
Further files for reload, such as templates and configuration; patterns like \
templates/*.html are expanded again at each look. May be repeated.",
        },
    ],
};

/// `KEY=VALUE` as setenv(3) takes it.
fn assignment(text: &str) -> Result<(), String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => without_nul(text),
        _ => Err("it is written KEY=VALUE".into()),
    }
}

/// An address at which the master takes commands.
fn control_address(text: &str) -> Result<(), String> {
    ControlAddress::parse(text).map(drop)
}
