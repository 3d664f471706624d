//go:build tools

// Package tools names the programs that `make test-chart` builds, so that go.mod and go.sum pin all that they are made of.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
