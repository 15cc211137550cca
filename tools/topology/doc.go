// Command topology runs the services of a docker-compose.yml as plain processes of this machine, for tests and for
// machines without Docker.
//
// # What it is
//
// Commands, flags, environment, configurations, secrets, health checks and the order of starting are those of the file.
// What a container has of its own is mapped: addresses become ports of the loopback interface, and paths of volumes,
// secrets and configurations become paths in one folder. It needs the programs of PostgreSQL, and nginx for the proxy;
// the NATS server is in it.
//
// # Contract
//
// When every service is there, and healthy where the file has a check, it prints a line of JSON that describes the
// processes. It ends them on SIGTERM or SIGINT, and itself with status 1 when one of them ends or nothing comes of it.
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
// place.go has the mapping, images.go the programs that stand for images.
package main
