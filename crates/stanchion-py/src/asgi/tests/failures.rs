use pyo3::prelude::*;

use super::super::gone::comes_of_gone_client;
use crate::response::ClientGone;
use crate::tests::rig::{module, value_in, with_python};

const EXCEPTIONS: &str = r#"
class ClientDisconnect(Exception):
    """Starlette's."""

class WebSocketDisconnect(Exception):
    """Frameworks raise it while they handle the exception that send has raised."""

def caused(by, of=RuntimeError):
    raised = of("raised from it")
    raised.__cause__ = by
    return raised

def handling(by, of=RuntimeError):
    try:
        try:
            raise by
        except BaseException:
            raise of("raised while it was handled")
    except of as raised:
        return raised

def group(*exceptions):
    return BaseExceptionGroup("of tasks", exceptions)

def nested(depth, innermost):
    for _ in range(depth):
        innermost = group(innermost)
    return innermost

def circle():
    one = RuntimeError()
    two = caused(one)
    one.__cause__ = two
    return one

class Odd(Exception):
    exceptions = 5

class Empty(Exception):
    exceptions = []
"#;

#[test]
fn an_exception_that_a_client_has_caused_by_leaving_is_told_from_those_of_the_app() {
    with_python(|py| {
        let exceptions = module(py, EXCEPTIONS);
        let gone = py.get_type::<ClientGone>();
        exceptions.add("Gone", gone).expect("a module");
        for (expression, expected) in [
            ("Gone()", true),
            ("ClientDisconnect()", true),
            ("RuntimeError()", false),
            ("ConnectionResetError()", false),
            ("KeyboardInterrupt()", false),
            ("WebSocketDisconnect()", false),
            ("caused(Gone())", true),
            ("caused(caused(ClientDisconnect()))", true),
            ("caused(RuntimeError())", false),
            // Python notes what was handled also for an error that has nothing to do with it.
            ("handling(Gone())", false),
            ("handling(Gone(), WebSocketDisconnect)", true),
            ("handling(RuntimeError(), WebSocketDisconnect)", false),
            ("caused(handling(Gone(), WebSocketDisconnect))", true),
            ("group(Gone(), caused(Gone()))", true),
            ("group(Gone(), RuntimeError())", false),
            ("group(Gone(), group(Gone()))", true),
            ("group(Gone(), group(ValueError()))", false),
            ("caused(group(Gone()))", true),
            ("nested(4, Gone())", true),
            ("nested(5, Gone())", false),
            ("group(*[Gone() for _ in range(255)])", true),
            ("group(*[Gone() for _ in range(256)])", false),
            ("circle()", false),
            ("Odd()", false),
            ("Empty()", false),
        ] {
            let raised = PyErr::from_value(value_in(&exceptions.dict(), expression));
            assert_eq!(comes_of_gone_client(py, &raised), expected, "{expression}");
        }
    });
}
