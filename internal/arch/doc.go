// Package arch holds the project to its rules: which package imports which, how files are named and how long they
// are, and what the pages of docs/ say.
//
// # What it is
//
// Tests alone. TestArchitecture reads every file of the tree and prints each violation with the reason of its rule.
//
// # Contract
//
// Each rule can fail: TestArchitectureRulesCanFail shows it a tree that breaks it.
//
// # Concurrency
//
// None: the tests read files, one after the other.
//
// # What it does not do
//
// It does not run the code that it looks at, and it does not format it.
//
// # Where to look next
//
// docs/ARCHITECTURE.md draws the floors; docs/contributing.md says the rules in words.
package arch
