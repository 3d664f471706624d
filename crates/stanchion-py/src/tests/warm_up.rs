use pyo3::prelude::*;
use stanchion_settings::Settings;

use super::rig::{module, shown, value_in, with_python};
use crate::warm_up::warm_up;

/// Calls the app of a module with the requests, without a limit: only the main thread of a process has one.
fn warm(code: &str, paths: &str, expression: &str) -> String {
    let settings = settings_of(paths);
    with_python(|py| {
        let module = module(py, code);
        let app = module.getattr("app").expect("an app");
        warm_up(py, &app, &settings, None).expect("no fault of ours");
        let names = module.dict();
        let value = value_in(&names, expression);
        names.set_item("value", value).expect("memory");
        shown(&names, "value")
    })
}

fn settings_of(paths: &str) -> Settings {
    let text = format!(r#"{{"warm_up": "{paths}", "timeout": 0}}"#);
    Settings::from_json(&text).expect("settings")
}

#[test]
fn each_request_has_an_environ_of_its_own() {
    let code = "asked = []\ndef app(environ, start_response):\n    asked.append(environ)\n    start_response('200 OK', [])\n    \
                return [b'x']\n";
    let expression = "[(e['wsgi.url_scheme'], e['SERVER_NAME'], e['SERVER_PORT'], e['PATH_INFO'], e['stanchion.warm_up']) \
                      for e in asked]";
    assert_eq!(
        warm(code, "/, https://shop.example:8443/a, /", expression),
        "[('http', 'localhost', '80', '/', True), ('https', 'shop.example', '8443', '/a', True), \
         ('http', 'localhost', '80', '/', True)]"
    );
}

#[test]
fn what_an_app_keeps_of_a_warm_up_does_nothing_later() {
    let code = "kept = []\ndef app(environ, start_response):\n    write = start_response('200 OK', [('Content-Length', '4')])\n    \
                kept.append((environ, start_response, write))\n    return [b'body']\n";
    let gone = "[environ['stanchion.client_gone']() for environ, _, _ in kept]";
    assert_eq!(warm(code, "/, /", gone), "[True, True]");
    let written = "[write(b'late') for _, _, write in kept]";
    assert_eq!(warm(code, "/, /", written), "[None, None]");
    let hinted = "[environ['wsgi.early_hints']([('Link', '</a>')]) for environ, _, _ in kept]";
    assert_eq!(warm(code, "/, /", hinted), "[None, None]");
}

#[test]
fn what_an_app_returns_is_closed_also_after_a_failure() {
    let code = "closed = []\nclass Answer:\n    def __init__(self, path):\n        self.path = path\n    \
                def __iter__(self):\n        if self.path == '/bad':\n            raise ValueError\n        yield b'good'\n    \
                def close(self):\n        closed.append(self.path)\ndef app(environ, start_response):\n    \
                start_response('200 OK', [])\n    return Answer(environ['PATH_INFO'])\n";
    assert_eq!(warm(code, "/bad, /good", "closed"), "['/bad', '/good']");
}
