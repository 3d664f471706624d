//! Tests with Python in their own process: an app, or an expression of Python, gives what an app would give.

mod environ;
mod gateway;
mod head;
mod objects;
pub(crate) mod rig;
mod warm_up;
