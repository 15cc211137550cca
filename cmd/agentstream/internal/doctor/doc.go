// Package doctor finds what is set up wrongly around a deployment.
//
// # What it is
//
// [SetupCmd] looks at what clients meet on their way (a proxy that buffers, compresses or cuts), at the servers of
// NATS, at the database, the objects and the files of credentials, and then compares the log with the archive
// (archive.DoctorCmd).
//
// # Contract
//
// Each finding names what is wrong and the setting or command that mends it. A deployment that is in order has none.
// What cannot be seen from here, as no flag says where it is, is not looked at. Nothing is changed; one small object is
// written and removed. Findings hold no credential.
//
// # Concurrency
//
// A command runs in one goroutine.
//
// # What it does not do
//
// It watches nothing: that is what alarms are for.
//
// # Where to look next
//
// doctor.go for the command; front.go, servers.go and files.go for what is looked at.
package doctor
