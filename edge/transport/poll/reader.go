package poll

// Reader is who is called when there is something to read.
type Reader interface{ Readable(*Watch) }

// readerFunc is a function as a Reader.
type readerFunc func(*Watch)

func (fn readerFunc) Readable(w *Watch) { fn(w) }
