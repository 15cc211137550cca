package natsjs

import "time"

// SetChildAgain changes after how long what is said of a child is said anew.
func (l *Log) SetChildAgain(d time.Duration) { l.childAgain = d }

// Doubt makes the next call compare every partition again.
func (l *Log) Doubt() {
	for p := range l.compared.parts {
		l.compared.parts[p].doubts.Add(1)
	}
}
