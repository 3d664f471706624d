//go:build tools

// Package h2spec names the conformance test that `make test-needs` builds, so that go.mod and go.sum pin all of it.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
