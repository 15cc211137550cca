// Package child starts processes that end with the one that started them.
//
// # What it is
//
// [Start] starts a process; [Child.Stop] ends it. [EndWithParent] is for callers that start it themselves.
//
// # Contract
//
// On Linux the kernel ends a child when this process has ended, also when this one is killed. Elsewhere only Stop ends
// it.
//
// # Concurrency
//
// A Child is safe for concurrent use. One goroutine waits for each child.
//
// # What it does not do
//
// It restarts nothing and reads no output.
//
// # Where to look next
//
// The referee and agentstream-bench start what they measure with it.
package child
