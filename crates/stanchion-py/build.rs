//! Tests find Python's library where the Python has it that they are linked with. The module in a wheel is linked with none.

fn main() {
    pyo3_build_config::add_libpython_rpath_link_args();
}
