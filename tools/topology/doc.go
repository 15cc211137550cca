// Command topology runs the services of a docker-compose.yml, or the pods of the Helm chart, as plain processes of this
// machine, for tests and for machines without Docker and without a cluster.
//
// # What it is
//
// Commands, flags, environment, configurations, secrets, health checks and the order of starting are those of the file.
// What a container has of its own is mapped: addresses become ports of the loopback interface, and paths of volumes,
// secrets and configurations become paths in one folder. It needs the programs of PostgreSQL, and nginx for the proxy;
// the NATS server is in it.
//
// With -chart it starts the pods that rendered manifests describe: each with the arguments, variables, mounted files
// and probes of its container, as many as the chart wants (where an autoscaler decides, its least), the Job first.
// Around them it puts the NATS servers that the values files of the NATS chart describe, PostgreSQL of the compose
// file, and an nginx that does what ingress-nginx does for the Ingresses. Mapped are addresses (a port, and the name of
// a pod or of a Service in a text) and paths of mounts, and nothing else; what a process cannot be given is refused.
//
// # Contract
//
// When every service is there, and healthy where the file has a check, it prints a line of JSON that describes the
// processes. It ends them on SIGTERM or SIGINT, and itself with status 1 when one of them ends or nothing comes of it.
// With -chart the probes go on, a liveness probe that fails too often ends everything, pods have their grace to end,
// and a second line says how each has ended and what its probes have said.
//
// # Concurrency
//
// One process a service; each is started when what it depends on is as the file wants it.
//
// # What it does not do
//
// It limits neither memory nor processors, and starts nothing again that has ended.
//
// # Where to look next
//
// place.go has the mapping, images.go the programs that stand for images; pods.go, natschart.go and ingress.go turn
// manifests and values into services, kubelet.go probes.
package main
