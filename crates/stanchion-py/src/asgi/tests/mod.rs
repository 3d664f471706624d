//! One request or WebSocket at a time, whose app runs until it waits.

mod answers;
mod failures;
mod inputs;
mod leaving;
mod rig;
mod scope;
mod sockets;
