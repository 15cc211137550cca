package model

// Kind is why a model has not answered.
type Kind int

// Kinds of errors.
const (
	Internal    Kind = iota // the provider has failed, or what it sent cannot be read
	BadInput                // the session or the message asks for what no model answers
	NotFound                // there is no such model
	Limited                 // the provider takes no more for now
	Timeout                 // the provider gave up waiting
	Unavailable             // the provider does not answer, or not us
	Broken                  // the answer broke off
)

// Error is an error of an answer, with its kind. Its text is that of Err.
type Error struct {
	Kind Kind
	Err  error
}

// Error returns the text of the error that it holds.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error that it holds.
func (e *Error) Unwrap() error { return e.Err }
