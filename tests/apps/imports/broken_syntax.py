"""An app that is not Python; written by exec so that linters can read this file."""

exec("def app(:")
