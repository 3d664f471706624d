//! The help of settings, which the files in `help/` hold.
//!
//! A file is one section: its title behind `#`, and behind each `##` a setting, with one line that stands beside the flags in 79 columns, and
//! paragraphs on the behaviour past the limit, and on the limit of the kernel that silently wins.

use super::row::Setting;
use super::table::find;

macro_rules! sections {
    ($($file:literal),* $(,)?) => { &[$(include_str!(concat!("../help/", $file, ".txt"))),*] };
}

/// In the order in which people read about them.
const FILES: &[&str] = sections![
    "server-socket",
    "tls",
    "workers",
    "asynchronous-apps",
    "the-line",
    "limits",
    "buffers",
    "process",
    "proxies",
    "accepted-requests",
    "http2",
    "static-files",
    "compression",
    "logging",
    "seeing-the-line",
    "app",
];

/// Settings that belong together.
#[derive(Debug)]
pub(super) struct HelpSection {
    /// The heading over them.
    pub(super) title: &'static str,
    /// The settings, in order.
    pub(super) settings: Vec<Help>,
}

/// The help of one setting.
#[derive(Debug)]
pub(super) struct Help {
    pub(super) setting: &'static Setting,
    /// One line.
    pub(super) summary: &'static str,
    /// Each in one line.
    pub(super) paragraphs: Vec<String>,
}

/// Every section, in order.
pub(super) fn sections() -> impl Iterator<Item = HelpSection> {
    FILES.iter().map(|file| {
        let mut parts = file.split("\n## ");
        let title = parts.next().unwrap_or_default();
        HelpSection {
            title: title.trim_start_matches("# ").trim_end(),
            settings: parts.map(help).collect(),
        }
    })
}

fn help(part: &'static str) -> Help {
    let (name, rest) = part.split_once('\n').unwrap_or((part, ""));
    let (summary, text) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let paragraphs = text.split("\n\n");
    Help {
        setting: find(name).expect("each heading of a file in help/ is the name of a setting"),
        summary,
        paragraphs: paragraphs
            .map(|lines| lines.trim_end().replace('\n', " "))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::ValueKind;
    use super::super::table::settings;
    use super::*;

    /// Columns of a terminal that `-h` may fill, and what it puts around flags and help.
    const HELP_COLUMNS: usize = 79;
    /// As in python/stanchion/usage.py.
    const FLAGS_COLUMNS_MAX: usize = 32;
    const INDENT_AND_GAP: usize = 4;

    /// The widest left column of `-h`: the short flag and the first long one, with the metavar.
    fn flags_columns(setting: &Setting) -> usize {
        let is_long = |flag: &&str| flag.starts_with("--");
        let short = setting.flags().find(|flag| !is_long(flag));
        let long = setting.flags().find(is_long);
        let off = setting.flags().find(|flag| flag.starts_with("--no-"));
        let flags = [short, long, off].into_iter().flatten();
        flags.map(|flag| flag.len() + 2).sum::<usize>() + setting.metavar().len()
    }

    #[test]
    fn each_setting_has_one_help_that_fits_its_column() {
        let all: Vec<_> = sections().flat_map(|section| section.settings).collect();
        let mut explained: Vec<_> = all.iter().map(|help| help.setting.name).collect();
        let mut names: Vec<_> = settings().map(|setting| setting.name).collect();
        explained.sort_unstable();
        names.sort_unstable();
        assert_eq!(explained, names);
        let usual = settings().map(flags_columns);
        let left = usual.filter(|&columns| columns <= FLAGS_COLUMNS_MAX).max();
        for help in all {
            let name = help.setting.name;
            // Longer ones push their help aside.
            let left = flags_columns(help.setting).max(left.unwrap());
            let columns = left + INDENT_AND_GAP + help.summary.len();
            assert!(columns <= HELP_COLUMNS, "{name}: {columns} columns");
            assert!(
                !help.summary.is_empty() && !help.summary.ends_with('.'),
                "{name}"
            );
            assert!(help.paragraphs.last().unwrap().ends_with('.'), "{name}");
        }
    }

    #[test]
    fn names_and_flags_are_unique_and_well_formed() {
        let mut seen = std::collections::HashSet::new();
        for setting in settings() {
            assert!(seen.insert(setting.name), "{} twice", setting.name);
            let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(setting.name.bytes().all(is_plain), "{}", setting.name);
            for flag in setting.flags() {
                assert!(seen.insert(flag), "{flag} twice");
            }
            let takes_value =
                !matches!(setting.kind, ValueKind::Bool) && setting.flags().count() > 0;
            let has_metavar = !setting.metavar().is_empty();
            assert_eq!(has_metavar, takes_value, "metavar of {}", setting.name);
            let format = setting.env.as_ref().map_or("{}", |env| env.format);
            assert_eq!(format.matches("{}").count(), 1, "{}", setting.name);
        }
    }
}
