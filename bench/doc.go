// Package bench measures the product beside bare NATS, so that the cost of our layers is a ratio.
//
// # What it is
//
// BenchmarkSideBySide runs each job (publish, ingest, replay, watch) with the product's own parts and
// then with nothing but nats.go, against the same server, in rounds that take turns, and prints one
// table. BenchmarkScenarios runs the scenarios that peers are compared in (fan-out, many runs, idle
// watchers, replay, publish) against the product in this process. The other benchmarks are of single hot
// paths without a broker. There is no code here but tests. Below are:
//
//	load               the load generator, which checks every delivery
//	plot               pictures of what was measured
//	agentstream-bench  the program that puts a load on a server
//	referee            the program that measures this build beside others
//	child              processes that end with the program that started them
//
// # Contract
//
// Every measured variant proves that all it was given was stored or delivered, in order, once; a
// figure of a variant that lost something is an error and not a figure. TestSideBySide does the same
// with small numbers and looks at no time. Everything is on loopback, bounded, and gone at the end: the
// server is a child process that ends with its parent.
//
// # Concurrency
//
// One variant runs at a time. Within one, the writers and watchers that its name says.
//
// # What it does not do
//
// It measures no disk and no network: the file store syncs by the server's default, peers are on
// loopback. The persister has benchmarks of its own (persister/postgres, persister/sqlite).
//
// # Where to look next
//
// docs/performance.md for the method, the figures and what they mean; docs/capacity.md for what they say
// about the size of a deployment.
package bench
