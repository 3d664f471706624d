//! Merging layers of values, the lowest first, into one checked value for each setting.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::coerce::coerce;
use super::lane::LANES_MAX;
use super::loop_seats::loop_seats;
use super::table::{self, Runner, WITHOUT_EFFECT};
use super::{Bind, Lane, SettingsError};

/// Most requests that can run at once in threads: workers times threads. Each seat costs shared memory and
/// a place in the scoreboard from the start.
const SEATS_MAX: u64 = 4096;
/// The longest error of a value.
const ERROR_CHARS_MAX: usize = 1_000;

/// Where the values of the table come from, in `stanchion check`.
const TABLE_ORIGIN: &str = "default";

/// Values from one place.
#[derive(Debug, Deserialize)]
pub struct Layer {
    /// The place, as people know it: "command line", "environment PORT", "config file PATH".
    pub origin: String,
    /// Raw values by name of setting: texts from the outside, native ones from a config file.
    pub values: Map<String, Value>,
}

/// The effective values, and all that was wrong with those given.
#[derive(Debug, Serialize)]
pub struct Resolution {
    /// One value for each setting of the table, by name. A refused one is left out of it: the
    /// next lower stands.
    pub values: BTreeMap<&'static str, Resolved>,
    /// One line for each refused value.
    pub errors: Vec<String>,
    /// Names that are no settings.
    pub unknown: Vec<Unknown>,
    /// One line for each value that lets in requests that no client should send.
    pub warnings: Vec<String>,
}

/// A value and the place that it came from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// The value, of the setting's kind.
    pub value: Value,
    /// The [`Layer::origin`], or "default".
    pub origin: String,
}

impl Resolved {
    /// Whether no layer has set it.
    pub(super) fn is_default(&self) -> bool {
        self.origin == TABLE_ORIGIN
    }
}

/// A name that is no setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// The [`Layer::origin`].
    pub origin: String,
}

/// Merges `layers`, lowest first, over the defaults. A higher layer replaces a value whole, lists
/// too, as in gunicorn. Every value is checked, also one that a higher layer replaces.
pub fn resolve(layers: &[Layer]) -> Resolution {
    let mut resolution = Resolution::of_defaults();
    for layer in layers {
        for (name, raw) in &layer.values {
            resolution.put(name, raw, &layer.origin);
        }
        resolution.let_the_later_interface_win(layer);
    }
    resolution.check_together();
    resolution.warn_of_risks();
    resolution.warn_of_what_has_no_effect();
    resolution
}

/// [`resolve`] for a caller who speaks JSON: a list of [`Layer`]s in, a [`Resolution`] out.
pub fn resolve_json(layers: &str) -> Result<String, SettingsError> {
    let layers: Vec<Layer> = serde_json::from_str(layers)?;
    Ok(serde_json::to_string(&resolve(&layers))?)
}

impl Resolution {
    fn of_defaults() -> Self {
        let default = |setting: &'static table::Setting| {
            let value = Value::from(&setting.default);
            (
                setting.name,
                Resolved {
                    value,
                    origin: TABLE_ORIGIN.into(),
                },
            )
        };
        let values = table::settings().map(default).collect();
        Self {
            values,
            errors: Vec::new(),
            unknown: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn put(&mut self, name: &str, raw: &Value, origin: &str) {
        let Some(setting) = table::find(name) else {
            self.unknown.push(Unknown {
                name: name.into(),
                origin: origin.into(),
            });
            return;
        };
        match coerce(&setting.kind, raw) {
            Ok(value) => {
                self.values.insert(
                    setting.name,
                    Resolved {
                        value,
                        origin: origin.into(),
                    },
                );
            }
            Err(reason) => self.refuse(name, origin, &reason),
        }
    }

    /// A layer that asks for an asynchronous app has no use for the gevent of a layer below it, as where gunicorn's `-k` takes the place of a
    /// `worker_class`.
    fn let_the_later_interface_win(&mut self, layer: &Layer) {
        let gives = |name: &str| layer.values.contains_key(name);
        let is_asgi = self.values["interface"].value == "asgi";
        if gives("interface") && is_asgi && !gives("loop") && self.is_gevent() {
            self.put("loop", &Value::from("auto"), &layer.origin);
        }
    }

    /// Checks that concern more than one setting.
    fn check_together(&mut self) {
        self.check_loop();
        self.check_seats();
        self.check_memory();
        self.check_worker_ports();
        self.check_binds();
        self.check_lanes();
        self.check_http2();
        self.check_certificates();
    }

    /// RFC 9113 section 3.1 has removed the upgrade.
    fn check_http2(&mut self) {
        let Resolved { value, origin } = &self.values["http2_cleartext"];
        if *value == "upgrade" || *value == "both" {
            let (origin, reason) = (
                origin.clone(),
                "RFC 9113 has removed the upgrade from HTTP/1.1 to HTTP/2: have the proxy in front begin with HTTP/2, and \
                 say prior-knowledge",
            );
            self.refuse("http2_cleartext", &origin, reason);
        }
    }

    /// The setting that asks for HTTP/2 where it is not spoken, and why it is not.
    fn http2_in_vain(&self) -> Option<(&'static str, &'static str)> {
        let protocols = self.values["http_protocols"].value.as_str().unwrap_or("");
        let has_http2 = protocols.to_ascii_lowercase().contains("h2");
        let has_cleartext = self.values["http2_cleartext"].value == "prior-knowledge";
        let is_uwsgi = self.values["protocol"].value == "uwsgi";
        let given = self.values["certfile"].value.as_array();
        let has_tls = given.is_some_and(|paths| paths.iter().any(|path| *path != ""));
        match (has_http2, has_cleartext || has_tls) {
            (true, _) if is_uwsgi => Some((
                "http_protocols",
                "the uwsgi protocol is spoken (`protocol`)",
            )),
            (true, false) => Some((
                "http_protocols",
                "http2_cleartext is off, and there is no certfile",
            )),
            (false, true) if has_cleartext => {
                Some(("http2_cleartext", "http_protocols does not have h2"))
            }
            _ => None,
        }
    }

    fn warn_of_risks(&mut self) {
        for &(name, risky, risk) in table::RISKS {
            let Resolved { value, origin } = &self.values[name];
            let is_risky = match value {
                Value::Bool(value) => *value,
                // It may be one of several names.
                value => value
                    .as_str()
                    .is_some_and(|text| text.split(',').any(|word| word.trim() == risky)),
            };
            if is_risky {
                let line = format!("setting `{name}` from {origin}: {risk}");
                self.warnings.push(line);
            }
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.values[name].value.as_u64().unwrap_or_default()
    }

    fn is_gevent(&self) -> bool {
        self.values["loop"].value == "gevent"
    }

    fn is_event_loop(&self) -> bool {
        self.values["interface"].value == "asgi" || self.is_gevent()
    }

    /// The number of seats, which [`super::Settings::seats`] will give, and the settings that it comes from.
    fn seats(&self) -> (u64, &'static str) {
        let workers = self.number("workers");
        if self.is_event_loop() {
            let seats = workers * loop_seats(workers, self.number("worker_concurrency"));
            (seats, "workers times worker_concurrency")
        } else {
            let seats = workers.saturating_mul(self.number("threads"));
            (seats, "workers times threads")
        }
    }

    /// The way in which workers run requests, as far as a setting names it.
    fn runner(&self) -> Option<Runner> {
        let interface = &self.values["interface"].value;
        if self.is_gevent() {
            Some(Runner::Greenlets)
        } else if interface == "asgi" {
            Some(Runner::EventLoop)
        } else {
            (interface == "wsgi").then_some(Runner::Threads)
        }
    }

    fn warn_of_what_has_no_effect(&mut self) {
        let Resolved { value, origin } = &self.values["early_hints"];
        if *value == true && self.values["protocol"].value == "uwsgi" {
            self.warnings.push(format!(
                "setting `early_hints` from {origin}: it has no effect with the uwsgi protocol, which has no early hints"
            ));
        }
        if let Some((name, why)) = self.http2_in_vain() {
            let origin = &self.values[name].origin;
            self.warnings.push(format!(
                "setting `{name}` from {origin}: it has no effect: {why}"
            ));
        }
        let Some(runner) = self.runner() else {
            return;
        };
        let rows = WITHOUT_EFFECT
            .iter()
            .filter(|row| row.runners.contains(&runner));
        for row in rows {
            let Resolved { value, origin } = &self.values[row.name];
            let is_missed = table::find(row.name).is_some_and(|one| row.is_missed(one, value));
            if origin != TABLE_ORIGIN && is_missed {
                self.warnings.push(format!(
                    "setting `{}` from {origin}: it has no effect with {}: {}",
                    row.name,
                    runner.words(),
                    row.why
                ));
            }
        }
    }

    /// gevent runs WSGI apps.
    fn check_loop(&mut self) {
        let interface = &self.values["interface"];
        if self.is_gevent() && interface.value == "asgi" {
            let reason = format!(
                "gevent runs WSGI apps, and `interface` from {} says asgi: leave one of them out, or say `loop` auto",
                interface.origin
            );
            let origin = self.values["loop"].origin.clone();
            self.refuse("loop", &origin, &reason);
        }
    }

    fn check_seats(&mut self) {
        let workers = self.number("workers");
        // A worker takes one at least, whatever it is.
        let threads = if self.is_event_loop() {
            1
        } else {
            self.number("threads")
        };
        if workers.saturating_mul(threads) > SEATS_MAX {
            // The higher of the two is the likelier slip.
            let culprit = if workers >= threads {
                "workers"
            } else {
                "threads"
            };
            let origin = self.values[culprit].origin.clone();
            let reason = format!(
                "expected workers times threads <= {SEATS_MAX}, got {workers} times {threads}"
            );
            self.refuse(culprit, &origin, &reason);
        }
    }

    /// The hard bound must leave the soft one something to do.
    fn check_memory(&mut self) {
        let (soft, hard) = (self.number("max_memory"), self.number("max_memory_hard"));
        if hard != 0 && hard < soft {
            let origin = self.values["max_memory_hard"].origin.clone();
            let reason = format!("expected 0 or at least max_memory, which is {soft}, got {hard}");
            self.refuse("max_memory_hard", &origin, &reason);
        }
    }

    fn check_worker_ports(&mut self) {
        let (base, workers) = (self.number("worker_port_base"), self.number("workers"));
        let ports_max = u64::from(u16::MAX);
        if base != 0 && base + workers - 1 > ports_max {
            let origin = self.values["worker_port_base"].origin.clone();
            let reason = format!(
                "expected a port for each of {workers} workers up to {ports_max}, got {base}"
            );
            self.refuse("worker_port_base", &origin, &reason);
        }
    }

    /// Each listener is one of its own.
    fn check_binds(&mut self) {
        let Resolved { value, origin } = &self.values["bind"];
        let texts = value.as_array().into_iter().flatten();
        // Each was checked by itself.
        let binds: Vec<_> = texts
            .filter_map(|text| Bind::parse(text.as_str()?).ok())
            .collect();
        let clash = binds.iter().enumerate().find_map(|(index, bind)| {
            let others = &binds[..index];
            others.iter().find_map(|other| other.clash(bind))
        });
        if let Some(reason) = clash {
            let origin = origin.clone();
            self.refuse("bind", &origin, &reason);
        }
    }

    /// Each certificate has a key, and a server that verifies clients has the certificates of their authorities.
    fn check_certificates(&mut self) {
        let count = |name: &str| {
            let given = self.values[name].value.as_array().into_iter().flatten();
            given.filter(|path| *path != "").count()
        };
        let (chains, keys) = (count("certfile"), count("keyfile"));
        if chains == 0 {
            // Then no other setting of TLS matters, as in gunicorn. The server reports a key without a certificate when it starts.
            return;
        }
        if keys > 0 && keys != chains {
            let origin = self.values["keyfile"].origin.clone();
            let reason = format!(
                "expected one for each of {chains} `certfile`, or none if the keys are in the same files, got {keys}"
            );
            self.refuse("keyfile", &origin, &reason);
        }
        let ciphers = &self.values["ciphers"];
        if let Some(Err(reason)) = ciphers.value.as_str().map(stanchion_tls::check_suites) {
            let origin = ciphers.origin.clone();
            self.refuse("ciphers", &origin, &reason);
        }
        if self.number("cert_reqs") > 0 && self.values["ca_certs"].value.is_null() {
            let origin = self.values["cert_reqs"].origin.clone();
            let reason = "it needs `ca_certs`, whose certificates clients are to show";
            self.refuse("cert_reqs", &origin, reason);
        }
    }

    fn check_lanes(&mut self) {
        let texts = self.values["lane"].value.as_array().into_iter().flatten();
        // Each was checked by itself.
        let lanes: Vec<Lane> = texts
            .filter_map(|text| Lane::parse(text.as_str()?).ok())
            .collect();
        let (seats, product) = self.seats();
        let kept: usize = lanes.iter().map(|lane| lane.seats).sum();
        let again = (1..lanes.len())
            .map(|index| (&lanes[index].name, &lanes[..index]))
            .find(|(name, before)| before.iter().any(|lane| lane.name == **name));
        let reason = if lanes.len() > LANES_MAX {
            format!("expected at most {LANES_MAX}, got {}", lanes.len())
        } else if let Some((name, _)) = again {
            format!("there are two lanes '{name}'")
        } else if kept > 0 && kept as u64 >= seats {
            format!(
                "expected fewer reserved seats than the {seats} there are ({product}), got {kept}"
            )
        } else {
            return;
        };
        let origin = self.values["lane"].origin.clone();
        self.refuse("lane", &origin, &reason);
    }

    fn refuse(&mut self, name: &str, origin: &str, reason: &str) {
        self.errors
            .push(line(&format!("setting `{name}` from {origin}: {reason}")));
    }
}

/// An error in one line of bounded length, however a refused value in it was written: a terminal shows it, and a log has it. The
/// middle of a long one is left out, since a value stands before the reason.
fn line(text: &str) -> String {
    let mut chars = Vec::new();
    for char in text.chars() {
        if is_shown(char) {
            chars.push(char);
        } else {
            chars.extend(char.escape_unicode());
        }
    }
    if chars.len() <= ERROR_CHARS_MAX {
        return chars.into_iter().collect();
    }
    let (first, last) = (
        &chars[..ERROR_CHARS_MAX / 2],
        &chars[chars.len() - ERROR_CHARS_MAX / 2..],
    );
    first.iter().chain(['…'].iter()).chain(last).collect()
}

/// Whether a terminal shows the character where it stands, and in its line: not controls, separators of lines, or marks of
/// direction (Unicode Standard Annex 9).
fn is_shown(char: char) -> bool {
    let turns =
        matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !char.is_control() && !turns
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!(
            "setting `{}` from {}: there is no such setting",
            self.name, self.origin
        );
        out.write_str(&line(&text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layer(origin: &str, values: &Value) -> Layer {
        serde_json::from_value(json!({"origin": origin, "values": values})).unwrap()
    }

    fn effective(resolution: &Resolution, name: &str) -> (Value, String) {
        let one = &resolution.values[name];
        (one.value.clone(), one.origin.clone())
    }

    #[test]
    fn the_highest_layer_wins_and_says_so() {
        let resolution = resolve(&[
            layer("environment WEB_CONCURRENCY", &json!({"workers": "2"})),
            layer("config file c.py", &json!({"workers": 3, "threads": 8})),
            layer("command line", &json!({"workers": "4"})),
        ]);
        assert_eq!(resolution.errors, [""; 0]);
        assert_eq!(
            effective(&resolution, "workers"),
            (json!(4), "command line".into())
        );
        assert_eq!(
            effective(&resolution, "threads"),
            (json!(8), "config file c.py".into())
        );
        assert_eq!(
            effective(&resolution, "timeout"),
            (json!(30), "default".into())
        );
    }

    #[test]
    fn an_error_is_one_line_of_bounded_length() {
        let with_control = |rest: &str| {
            let control = format!("a\nb\u{1b}[2J{}", rest.repeat(10_000));
            resolve(&[layer(
                "config file c.py",
                &json!({"control": control, "no\nsuch": 1}),
            )])
        };
        for (rest, shown) in [("x", "x"), ("\u{1}", "\\u{1}"), ("\u{202e}", "\\u{202e}")] {
            let resolution = with_control(rest);
            let [error] = &resolution.errors[..] else {
                panic!("{:?}", resolution.errors);
            };
            let start = "setting `control` from config file c.py: 'a\\u{a}b\\u{1b}[2J";
            assert!(
                error.starts_with(&format!("{start}{shown}{shown}")),
                "{error}"
            );
            let reason = "is not a host (a unix socket is written unix:/path), got 'a";
            assert!(error.contains(reason), "{error}");
            assert!(error.chars().count() <= ERROR_CHARS_MAX + 1 && error.contains('…'));
        }
        assert_eq!(
            with_control("").unknown[0].to_string(),
            "setting `no\\u{a}such` from config file c.py: there is no such setting"
        );
    }

    #[test]
    fn a_list_is_replaced_and_not_extended() {
        let resolution = resolve(&[
            layer("config file c.py", &json!({"bind": [":1", ":2"]})),
            layer("command line", &json!({"bind": [":3"]})),
        ]);
        assert_eq!(
            effective(&resolution, "bind"),
            (json!([":3"]), "command line".into())
        );
    }

    #[test]
    fn each_bad_value_is_one_line_even_where_a_higher_layer_replaces_it() {
        let resolution = resolve(&[
            layer("environment PORT", &json!({"bind": "0.0.0.0:web"})),
            layer(
                "command line",
                &json!({"bind": [":80"], "workers": "x", "timeout": "soon"}),
            ),
        ]);
        assert_eq!(
            resolution.errors,
            [
                "setting `bind` from environment PORT: 'web' is not a port (0 to 65535), got \
                 '0.0.0.0:web'",
                "setting `timeout` from command line: expected a number of seconds from 0 to \
                 1000000000, got 'soon'",
                "setting `workers` from command line: expected a whole number >= 1, got 'x'",
            ]
        );
        assert_eq!(effective(&resolution, "bind").0, json!([":80"]));
    }

    #[test]
    fn too_many_seats_are_refused() {
        let at_most = resolve(&[layer(
            "command line",
            &json!({"workers": 512, "threads": 8}),
        )]);
        assert_eq!(at_most.errors, [""; 0]);
        let above = resolve(&[layer(
            "command line",
            &json!({"workers": 513, "threads": 8}),
        )]);
        assert_eq!(
            above.errors,
            [
                "setting `workers` from command line: expected workers times threads <= 4096, got 513 \
              times 8"
            ]
        );
    }

    #[test]
    fn of_an_event_loop_neither_threads_nor_their_number_count() {
        let check = |values: Value| {
            let resolution = resolve(&[layer("here", &values)]);
            (resolution.errors, resolution.warnings)
        };
        let nothing: (Vec<String>, Vec<String>) = Default::default();
        assert_eq!(check(json!({"interface": "asgi", "threads": 1})), nothing);
        assert_eq!(check(json!({"interface": "auto", "threads": 8})), nothing);
        let (errors, warnings) = check(json!({"interface": "asgi", "workers": 600, "threads": 8}));
        assert_eq!(errors, [""; 0]);
        assert_eq!(
            warnings,
            [
                "setting `threads` from here: it has no effect with an asynchronous app: each worker has one thread, \
                 which runs up to worker_concurrency requests at once"
            ]
        );
        let (errors, _) = check(json!({"interface": "asgi", "workers": 4097}));
        assert_eq!(errors.len(), 1, "{errors:?}");
        let kept = json!({"interface": "asgi", "worker_concurrency": 2, "lane": ["a=/a seats=2"]});
        assert_eq!(
            check(kept).0,
            [
                "setting `lane` from here: expected fewer reserved seats than the 2 there are (workers \
                 times worker_concurrency), got 2"
            ]
        );
    }

    #[test]
    fn the_uwsgi_protocol_has_no_early_hints() {
        let warnings = |values: Value| resolve(&[layer("here", &values)]).warnings;
        let told = warnings(json!({"early_hints": true, "protocol": "uwsgi"}));
        assert_eq!(
            told,
            [
                "setting `early_hints` from here: it has no effect with the uwsgi protocol, which has no early hints"
            ]
        );
        for quiet in [json!({"early_hints": true}), json!({"protocol": "uwsgi"})] {
            assert_eq!(warnings(quiet), [""; 0]);
        }
    }

    #[test]
    fn http2_has_to_be_asked_for_in_both_places() {
        let told = |values: Value| {
            let resolution = resolve(&[layer("here", &values)]);
            (resolution.errors, resolution.warnings)
        };
        for (values, word) in [
            (json!({"http_protocols": "h2,h1"}), "http2_cleartext is off"),
            (json!({"http2_cleartext": true}), "does not have h2"),
            (
                json!({"http_protocols": "h2", "http2_cleartext": "prior-knowledge", "protocol": "uwsgi"}),
                "uwsgi",
            ),
        ] {
            let (errors, warnings) = told(values.clone());
            assert_eq!(errors, [""; 0]);
            assert!(
                warnings.len() == 1 && warnings[0].contains(word),
                "{values} {warnings:?}"
            );
        }
        for quiet in [
            json!({"http_protocols": "H1, h2", "http2_cleartext": "prior-knowledge"}),
            json!({"http_protocols": "h1", "http2_cleartext": false}),
            json!({"http_protocols": "h2,h1", "certfile": "c.pem"}),
            json!({"http_protocols": "h1", "certfile": "c.pem"}),
        ] {
            assert_eq!(told(quiet), (Vec::new(), Vec::new()));
        }
        for refused in [
            json!({"http2_cleartext": "upgrade"}),
            json!({"http2_cleartext": "Both"}),
            json!({"http_protocols": "h3"}),
            json!({"http_protocols": "h2,h2"}),
            json!({"http2_max_frame_size": 16_383}),
        ] {
            assert_eq!(told(refused.clone()).0.len(), 1, "{refused}");
        }
    }

    #[test]
    fn gevent_takes_no_asynchronous_app_and_no_preloading() {
        let check = |values: Value| {
            let resolution = resolve(&[layer("here", &values)]);
            (resolution.errors, resolution.warnings)
        };
        let nothing: (Vec<String>, Vec<String>) = Default::default();
        let quiet = [
            json!({"loop": "gevent"}),
            json!({"loop": "gevent", "interface": "wsgi", "preload_app": false}),
            json!({"loop": "uvloop", "interface": "asgi", "preload_app": true}),
        ];
        for values in quiet {
            assert_eq!(check(values), nothing);
        }
        let (errors, _) = check(json!({"loop": "gevent", "interface": "asgi"}));
        assert_eq!(
            errors,
            [
                "setting `loop` from here: gevent runs WSGI apps, and `interface` from here says asgi: leave one of \
                 them out, or say `loop` auto"
            ]
        );
        let (errors, warnings) =
            check(json!({"loop": "gevent", "preload_app": true, "threads": 4}));
        assert_eq!(errors, [""; 0]);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].starts_with("setting `threads` from here: it has no effect with gevent: ")
        );
        assert!(warnings[1].starts_with("setting `preload_app` from here: it has no effect with"));
    }

    #[test]
    fn the_later_word_for_an_asynchronous_app_wins_over_gevent() {
        let file = json!({"loop": "gevent", "interface": "wsgi"});
        let over = |values: Value| {
            resolve(&[
                layer("config file c.py", &file),
                layer("command line", &values),
            ])
        };
        let asked = over(json!({"interface": "asgi"}));
        assert_eq!(asked.errors, [""; 0]);
        assert_eq!(
            effective(&asked, "loop"),
            (json!("auto"), "command line".into())
        );
        let other = over(json!({"interface": "wsgi", "workers": 2}));
        assert_eq!(effective(&other, "loop").0, json!("gevent"));
        let both = over(json!({"interface": "asgi", "loop": "gevent"}));
        assert_eq!(both.errors.len(), 1, "{both:?}");
        let uvloop = layer("config file c.py", &json!({"loop": "uvloop"}));
        let asked = resolve(&[uvloop, layer("command line", &json!({"interface": "asgi"}))]);
        assert_eq!(effective(&asked, "loop").0, json!("uvloop"));
    }

    #[test]
    fn what_has_no_effect_where_the_app_is_to_run_is_told() {
        let told = |values: Value| {
            let resolution = resolve(&[layer("here", &values)]);
            assert_eq!(resolution.errors, [""; 0]);
            let name = |line: &String| line.split('`').nth(1).unwrap().to_owned();
            resolution.warnings.iter().map(name).collect::<Vec<_>>()
        };
        let asked = |more: Value| {
            let mut values = json!({
                "threads": 4, "preload_app": true, "worker_concurrency": 10, "loop_timeout": 1, "worker_sessions": 10,
                "session_grace": 1, "ws_ping_interval": 1, "ws_ping_timeout": 1, "ws_max_size": 10, "max_ws_memory": 1000,
                "ws_per_message_deflate": true,
                "cancel_on_timeout": true, "whole_uploads": true, "lifespan": "on", "response_spool": 1000,
            });
            let object = values.as_object_mut().unwrap();
            object.extend(more.as_object().unwrap().clone());
            values
        };
        let of_asgi = [
            "worker_sessions",
            "session_grace",
            "ws_ping_interval",
            "ws_ping_timeout",
            "ws_max_size",
            "ws_per_message_deflate",
            "max_ws_memory",
            "cancel_on_timeout",
            "lifespan",
        ];
        let of_threads = [&["loop", "loop_timeout"][..], &of_asgi].concat();
        let of_gevent = [
            &["threads", "preload_app"][..],
            &of_asgi,
            &["response_spool"],
        ]
        .concat();
        assert_eq!(
            told(asked(json!({"interface": "wsgi", "loop": "uvloop"}))),
            of_threads
        );
        assert_eq!(told(asked(json!({"loop": "gevent"}))), of_gevent);
        assert_eq!(
            told(asked(json!({"interface": "asgi", "loop": "uvloop"}))),
            ["threads", "response_spool"]
        );
        // It is not known yet what the app is.
        assert_eq!(told(asked(json!({"loop": "uvloop"}))), [""; 0]);
        // Values that ask for what happens anyway, and values that are the default.
        assert_eq!(
            told(json!({
                "loop": "gevent", "threads": 1, "preload_app": false, "lifespan": "off", "worker_sessions": 1000,
                "response_spool": 0,
            })),
            [""; 0]
        );
    }

    #[test]
    fn bounds_that_contradict_each_other_are_refused() {
        let check = |values: Value| resolve(&[layer("here", &values)]).errors;
        assert_eq!(
            check(json!({"max_memory": "2G", "max_memory_hard": "1G"})),
            [
                "setting `max_memory_hard` from here: expected 0 or at least max_memory, which is \
              2147483648, got 1073741824"
            ]
        );
        assert_eq!(
            check(json!({"max_memory": "2G", "max_memory_hard": 0})),
            [""; 0]
        );
        assert_eq!(
            check(json!({"worker_port_base": 65_534, "workers": 2})),
            [""; 0]
        );
        assert_eq!(
            check(json!({"worker_port_base": 65_534, "workers": 3})),
            [
                "setting `worker_port_base` from here: expected a port for each of 3 workers up to \
              65535, got 65534"
            ]
        );
    }

    #[test]
    fn a_listener_that_is_given_twice_is_refused() {
        let check = |binds: Value| resolve(&[layer("here", &json!({"bind": binds}))]).errors;
        assert_eq!(check(json!([":80", ":443", "unix:/s"])), [""; 0]);
        assert_eq!(
            check(json!([
                ":443",
                ":80?tls=false",
                "tcp://0.0.0.0:443?tls=false"
            ])),
            [
                "setting `bind` from here: expected each address once, got 0.0.0.0:443 and \
                 0.0.0.0:443?tls=false: they are the same"
            ]
        );
    }

    #[test]
    fn lanes_that_do_not_go_together_are_refused() {
        let check = |values: Value| resolve(&[layer("here", &values)]).errors;
        let lanes = json!(["a=/a seats=2", "b=/b seats=1", "default seats=1"]);
        assert_eq!(check(json!({"workers": 5, "lane": lanes})), [""; 0]);
        assert_eq!(
            check(json!({"workers": 2, "threads": 2, "lane": lanes})),
            [
                "setting `lane` from here: expected fewer reserved seats than the 4 there are (workers \
                 times threads), got 4"
            ]
        );
        assert_eq!(
            check(json!({"lane": ["a=/a", "b=/b", "a=/c"]})),
            ["setting `lane` from here: there are two lanes 'a'"]
        );
        let many: Vec<_> = (0..33).map(|number| format!("l{number}=/")).collect();
        assert_eq!(
            check(json!({"lane": many})),
            ["setting `lane` from here: expected at most 32, got 33"]
        );
        assert_eq!(
            check(json!({"lane": "a=a"})),
            ["setting `lane` from here: 'a' is not a path that begins with /, got 'a=a'"]
        );
    }

    #[test]
    fn json_in_and_out() {
        let answer = resolve_json(
            r#"[{"origin": "config file c.py", "values": {"workers": 2, "worker_class": "sync"}}]"#,
        )
        .unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            answer["values"]["workers"],
            json!({"value": 2, "origin": "config file c.py"})
        );
        assert_eq!(
            answer["unknown"],
            json!([{"name": "worker_class", "origin": "config file c.py"}])
        );
        assert_eq!(answer["errors"], json!([]));
        assert!(matches!(resolve_json("{}"), Err(SettingsError::Json(_))));
    }
}
