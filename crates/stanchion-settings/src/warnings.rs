//! Warnings of values that an operator may regret, or has given in vain.

use stanchion_http::HeaderMap;

use super::Settings;
use super::row::Setting;
use super::table::rows;
use super::values::Values;
use super::without_effect::{Runner, WITHOUT_EFFECT};
use super::words::{Http2Cleartext, Protocol};

/// A setting that lets in requests which no client should send, and the risk of that.
struct Risk {
    setting: &'static Setting,
    is_taken: fn(&Settings) -> bool,
    risk: &'static str,
}

macro_rules! risks {
    ($($name:ident: $is_taken:expr, $risk:expr;)*) => {
        static RISKS: &[Risk] = &[$(Risk {
            setting: &rows::$name.setting,
            is_taken: $is_taken,
            risk: $risk,
        }),*];
    };
}

risks! {
    header_map: |set| set.http.header_map == HeaderMap::Dangerous,
        "a client can send X_Real_IP, which the app cannot tell from the X-Real-IP of your proxy";
    forwarder_headers: |set| set.proxies.forwarder_headers.split(',').any(|name| name.trim() == "*"),
        "every header with an underscore that your proxy passes on reaches the app, such as a REMOTE_USER from a client";
    permit_unconventional_http_method: |set| set.http.permit_unconventional_http_method,
        "rules of your proxy or firewall for GET or POST do not match get or post";
    casefold_http_method: |set| set.http.casefold_http_method,
        "your proxy may treat get differently from GET, which is what the app sees";
    permit_unconventional_http_version: |set| set.http.permit_unconventional_http_version,
        "your proxy may read such a request differently from this server (request smuggling)";
    permit_obsolete_folding: |set| set.http.permit_obsolete_folding,
        "your proxy may read the second line as a header of its own (request smuggling)";
    strip_header_spaces: |set| set.http.strip_header_spaces,
        "your proxy may overlook such a header, or remove only the usual spelling of it (request smuggling)";
}

/// Each in one line.
pub(super) fn warnings(settings: &Settings, values: &Values) -> Vec<String> {
    let mut warned = Vec::new();
    let mut warn = |setting: &Setting, text: &str| {
        let origin = &values[setting.name].origin;
        warned.push(format!("setting `{}` from {origin}: {text}", setting.name));
    };
    for Risk { setting, risk, .. } in RISKS.iter().filter(|risk| (risk.is_taken)(settings)) {
        warn(setting, risk);
    }
    if settings.answers.early_hints && settings.proxies.protocol == Protocol::Uwsgi {
        let why = "it has no effect with the uwsgi protocol, which has no early hints";
        warn(&rows::early_hints.setting, why);
    }
    if let Some((setting, why)) = http2_in_vain(settings) {
        warn(setting, &format!("it has no effect: {why}"));
    }
    let runner = Runner::of(settings);
    // The app decides how many seats there are, as long as no setting does.
    for lane in runner.iter().flat_map(|_| settings.lanes_without_limit()) {
        let (name, seats) = (&lane.name, settings.seats());
        let text = format!(
            "seats_max of '{name}' has no effect: expected fewer than the {seats} seats there are"
        );
        warn(&rows::lane.setting, &text);
    }
    for row in WITHOUT_EFFECT {
        let runner = runner.filter(|runner| row.runners.contains(runner));
        let is_given = !values[row.setting.name].is_default();
        if let Some(runner) = runner.filter(|_| is_given && row.is_missed(settings, values)) {
            let text = format!("it has no effect with {}: {}", runner.words(), row.why);
            warn(row.setting, &text);
        }
    }
    warned
}

/// The setting that asks for HTTP/2 where it is not spoken, and why it is not.
fn http2_in_vain(settings: &Settings) -> Option<(&'static Setting, &'static str)> {
    let (protocols, cleartext) = (
        &rows::http_protocols.setting,
        &rows::http2_cleartext.setting,
    );
    let has_cleartext = settings.http.http2_cleartext == Http2Cleartext::PriorKnowledge;
    let can_begin = has_cleartext || settings.serves_tls();
    match settings.speaks_http2() {
        true if settings.proxies.protocol == Protocol::Uwsgi => {
            Some((protocols, "the uwsgi protocol is spoken (`protocol`)"))
        }
        true if !can_begin => Some((
            protocols,
            "http2_cleartext is off, and there is no certfile",
        )),
        false if has_cleartext => Some((cleartext, "http_protocols does not have h2")),
        _ => None,
    }
}
