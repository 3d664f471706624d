//! The settings that a reload keeps as they are.

use super::Settings;
use super::row::OnReload;

/// The names of changed settings that a running server keeps as they are when it reloads.
pub fn kept_by_a_reload(old: &Settings, new: &Settings) -> Vec<String> {
    let kept = old
        .changed(new)
        .filter_map(|setting| match setting.on_reload {
            OnReload::Applies => None,
            OnReload::Stays => Some(setting.name.to_owned()),
            OnReload::StaysInErrorLog(part) => Some(format!("{part} of the error log")),
        });
    let mut kept: Vec<_> = kept.collect();
    // The settings of one thing stand together.
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use super::super::table::settings;
    use super::*;

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
        let keeps = settings().filter(|setting| setting.on_reload != OnReload::Applies);
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
}
