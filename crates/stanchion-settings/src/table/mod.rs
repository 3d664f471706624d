//! The table that defines every setting, and the words it is written in.

mod admin;
mod app;
mod compression;
mod event_loop;
mod http2;
mod limits;
mod line;
mod logging;
mod process;
mod requests;
mod serving;
mod static_files;
mod tls;
mod without_effect;

use super::Settings;
pub use super::kind::{Check, FromMap, Kind, Preset, Range};
pub use process::UMASK;
pub(super) use requests::RISKS;
pub(super) use without_effect::{Runner, WITHOUT_EFFECT};

/// Every setting, in the order in which people read about them.
pub const GROUPS: &[Group] = &[
    serving::SERVER_SOCKET,
    tls::TLS,
    serving::WORKERS,
    event_loop::EVENT_LOOP,
    line::LINE,
    limits::LIMITS,
    limits::BUFFERS,
    process::PROCESS,
    requests::PROXIES,
    requests::REQUESTS,
    http2::HTTP2,
    static_files::STATIC_FILES,
    compression::COMPRESSION,
    logging::LOGGING,
    admin::ADMIN,
    app::APP,
];

/// Settings that belong together.
#[derive(Debug)]
pub struct Group {
    /// The heading over them.
    pub title: &'static str,
    /// The settings, in order.
    pub settings: &'static [Setting],
}

/// The facts on one setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in a config file, in `stanchion check` and in [`super::Settings`].
    pub name: &'static str,
    /// Its flags, the preferred long one first after a short one; none: config file only. A flag
    /// of a [`Kind::Bool`] that begins with `--no-` switches it off.
    pub flags: &'static [&'static str],
    /// The word for the value in the help, such as `SECONDS`.
    pub metavar: &'static str,
    /// The environment variable that gives a default.
    pub env: Option<Env>,
    /// Which values it takes.
    pub kind: Kind,
    /// Its value where no layer sets it.
    pub default: Preset,
    /// Whether gunicorn has a setting of this name and meaning.
    pub gunicorn: bool,
    /// The effect of a reload on a change of it.
    pub on_reload: OnReload,
    /// One line, short enough to stand beside the flags in 79 columns.
    pub help: &'static str,
    /// The behaviour past the limit, and the limit of the kernel that silently wins.
    pub long_help: &'static str,
}

/// An environment variable that supplies a default, below the config file as in gunicorn.
#[derive(Debug)]
pub struct Env {
    /// The variable's name.
    pub name: &'static str,
    /// The value it gives, with `{}` where the variable's text goes.
    pub format: &'static str,
}

/// The effect of a reload on a change of a setting.
#[derive(Debug)]
pub enum OnReload {
    /// The new house goes by the new value.
    Applies,
    /// Nothing: it is the master's, and a master lives until the server is restarted.
    Stays(Differs),
    /// Nothing as far as the error log is concerned, which is the master's; all else goes by the new value.
    StaysInErrorLog {
        /// The part of the error log that this setting is about.
        what: &'static str,
        /// Whether it has changed.
        differs: Differs,
    },
}

/// Whether a setting has one value here and another there.
pub type Differs = fn(&Settings, &Settings) -> bool;

/// Every setting of every group.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    settings().find(|setting| setting.name == name)
}

/// The names of changed settings that a running server keeps as they are when it reloads.
pub fn kept_by_a_reload(old: &Settings, new: &Settings) -> Vec<String> {
    let kept = settings().filter_map(|setting| match setting.on_reload {
        OnReload::Stays(differs) if differs(old, new) => Some(setting.name.to_owned()),
        OnReload::StaysInErrorLog { what, differs } if differs(old, new) => {
            Some(format!("{what} of the error log"))
        }
        _ => None,
    });
    let mut kept: Vec<_> = kept.collect();
    // The settings of one thing stand together.
    kept.dedup();
    kept
}

/// The longest time a setting takes, about 30 years: far below where adding it to a clock
/// overflows.
const SECONDS_MAX: u64 = 1_000_000_000;

/// The least limit of a size but for 0: of a smaller number the unit was forgotten, as in 80 for 80 MB.
const SIZE_BYTES_MIN: u64 = 512;

/// Any length of time.
const ANY_TIME: Kind = Kind::Seconds(Range::between(0, SECONDS_MAX));

/// A text or none.
const OPTIONAL: Kind = Kind::Text {
    nullable: true,
    check: without_nul,
};

/// A text that the kernel takes as a path: it ends at a NUL.
fn without_nul(text: &str) -> Result<(), String> {
    if text.contains('\0') {
        Err("it holds no NUL byte".into())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Columns of a terminal that `-h` may fill, and what it puts around flags and help.
    const HELP_COLUMNS: usize = 79;
    /// As in python/stanchion/usage.py.
    const FLAGS_COLUMNS_MAX: usize = 32;
    const INDENT_AND_GAP: usize = 4;

    /// The widest left column of `-h`: the short flag and the first long one, with the metavar.
    fn flags_columns(setting: &Setting) -> usize {
        let is_long = |flag: &&&str| flag.starts_with("--");
        let short = setting.flags.iter().find(|flag| !is_long(flag));
        let long = setting.flags.iter().find(is_long);
        let off = setting.flags.iter().find(|flag| flag.starts_with("--no-"));
        [short, long, off]
            .into_iter()
            .flatten()
            .map(|flag| flag.len() + 2)
            .sum::<usize>()
            + setting.metavar.len()
    }

    #[test]
    fn names_and_flags_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        for setting in settings() {
            assert!(seen.insert(setting.name), "{} twice", setting.name);
            assert!(
                setting
                    .name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            for flag in setting.flags {
                assert!(flag.starts_with('-'), "{flag}");
                assert!(seen.insert(flag), "{flag} twice");
            }
            let takes_value = !matches!(setting.kind, Kind::Bool) && !setting.flags.is_empty();
            assert_eq!(
                !setting.metavar.is_empty(),
                takes_value,
                "metavar of {}",
                setting.name
            );
        }
    }

    #[test]
    fn help_fits_its_column() {
        let usual = settings().map(flags_columns);
        let left = usual.filter(|&columns| columns <= FLAGS_COLUMNS_MAX).max();
        for setting in settings() {
            // Longer ones push their help aside.
            let left = flags_columns(setting).max(left.unwrap());
            let columns = left + INDENT_AND_GAP + setting.help.len();
            assert!(
                columns <= HELP_COLUMNS,
                "{}: {columns} columns",
                setting.name
            );
            assert!(!setting.help.ends_with('.'), "{}", setting.name);
            assert!(setting.long_help.ends_with('.'), "{}", setting.name);
        }
    }

    /// A value that is not the default, for each setting that a reload does not change.
    const OTHERS: [(&str, &str, &str); 15] = [
        ("daemon", "true", "daemon"),
        (
            "enable_stdio_inheritance",
            "true",
            "enable_stdio_inheritance",
        ),
        ("pidfile", r#""/run/p""#, "pidfile"),
        ("signals", r#""unicorn""#, "signals"),
        ("control", r#""unix:/run/c""#, "control"),
        ("umask", "18", "umask"),
        ("errorlog", r#""/var/log/e""#, "errorlog"),
        ("loglevel", r#""debug""#, "loglevel"),
        ("syslog", "true", "syslog of the error log"),
        ("syslog_addr", r#""udp://h:1""#, "syslog of the error log"),
        ("syslog_prefix", r#""p""#, "syslog of the error log"),
        ("syslog_facility", r#""local0""#, "syslog of the error log"),
        ("statsd_host", r#""h:1""#, "statsd of the error log"),
        ("statsd_prefix", r#""p""#, "statsd of the error log"),
        ("dogstatsd_tags", r#""a:b""#, "statsd of the error log"),
    ];

    #[test]
    fn what_a_reload_keeps_is_told_by_its_own_change_alone() {
        let keeps = settings().filter(|setting| !matches!(setting.on_reload, OnReload::Applies));
        let mut keeps: Vec<_> = keeps.map(|setting| setting.name).collect();
        let mut tested = OTHERS.map(|(name, ..)| name);
        keeps.sort_unstable();
        tested.sort_unstable();
        assert_eq!(keeps, tested);
        let old = Settings::default();
        assert_eq!(kept_by_a_reload(&old, &old), [""; 0]);
        for (name, value, told) in OTHERS {
            let new = Settings::from_json(&format!("{{\"{name}\": {value}}}")).unwrap();
            assert_eq!(kept_by_a_reload(&old, &new), [told], "{name}");
        }
        let together = OTHERS.map(|(name, value, _)| format!("\"{name}\": {value}"));
        let new = Settings::from_json(&format!("{{{}}}", together.join(","))).unwrap();
        let kept = kept_by_a_reload(&old, &new);
        assert_eq!(kept.len(), 10, "each thing is told once: {kept:?}");
    }

    #[test]
    fn an_environment_variable_has_one_place_in_its_format() {
        for env in settings().filter_map(|setting| setting.env.as_ref()) {
            assert_eq!(env.format.matches("{}").count(), 1, "{}", env.name);
        }
    }
}
