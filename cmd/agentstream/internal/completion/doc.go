// Package completion lets shells complete commands, flags and their values.
//
// # What it is
//
// Cmd prints a script for bash, zsh or fish. The script calls the program itself, with Hook and the words before the
// cursor; Print answers with what may stand there.
//
// # Contract
//
// A line is a candidate, a tab, and a word about it. What is hidden in the help is not offered. No candidate means a
// file name, or text that only the person knows.
//
// # Concurrency
//
// There is no state.
//
// # What it does not do
//
// It asks no server: runs are not completed.
//
// # Where to look next
//
// completion.go for the candidates; the scripts beside it.
package completion
