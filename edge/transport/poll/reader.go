package poll

// Reader is who is called when there is something to read.
type Reader interface{ Readable(*Watch) }

// call is a function as a Reader.
type call func(*Watch)

func (fn call) Readable(w *Watch) { fn(w) }
