// Package helmcheck tests the Helm chart and the kustomize base of deploy.
//
// # What it is
//
// Helm's own packages render and lint the chart with each file deploy/helm/agentstream/ci/NAME-values.yaml; the
// manifests are decoded into the types of Kubernetes, the Prometheus operator and the Gateway API, and compared
// with testdata/NAME.yaml. It is a module of its own, so that the program depends on none of that.
//
// # Contract
//
// A field that is unknown, of a wrong type or there twice is an error, as is an unknown value. The program's own
// test (TestKubernetes in cmd/agentstream) reads the goldens and gives the program their arguments; it also
// compares the chart with testdata/chart.sha256, so that a chart which was changed without this test shows.
//
// # Concurrency
//
// None.
//
// # What it does not do
//
// It starts no cluster, and knows none of the program's code.
//
// # Where to look next
//
// deploy/helm/agentstream/values.yaml, docs/kubernetes.md.
package helmcheck
