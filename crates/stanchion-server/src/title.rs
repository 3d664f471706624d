//! The title that `ps` shows of each process: its role, and the app that it is for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use stanchion_sys::process::title;
use tracing::debug;

use stanchion_log::is_obeyed;
use stanchion_settings::Settings;

/// Shows the role of this process, which has been forked a moment ago, in the place of its command line.
pub(crate) fn show(role: &str, settings: &Settings) {
    show_with(role, settings, &[]);
}

/// The same with words behind it.
pub(crate) fn show_with(role: &str, settings: &Settings, words: &[OsString]) {
    let title = title(role, settings.name().as_deref());
    let words = words.iter().map(|word| word.as_bytes());
    let all: Vec<_> = std::iter::once(title.as_bytes()).chain(words).collect();
    if let Err(error) = title::show(&all) {
        debug!("ps shows the command line of the {role} and not its role: {error}");
    }
}

/// Such as `stanchion: worker 0 [shop:app]`. Characters that a terminal might obey are left out.
fn title(role: &str, name: Option<&str>) -> String {
    let mut title = format!("stanchion: {role}");
    if let Some(name) = name {
        title.push_str(" [");
        title.extend(
            name.chars()
                .map(|one| if is_obeyed(one) { '?' } else { one }),
        );
        title.push(']');
    }
    title
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_has_the_name_if_there_is_one() {
        assert_eq!(
            title("worker 0", Some("shop:app")),
            "stanchion: worker 0 [shop:app]"
        );
        assert_eq!(title("master", None), "stanchion: master");
        assert_eq!(
            title("master", Some("a\n\x1b[1m")),
            "stanchion: master [a??[1m]"
        );
    }
}
