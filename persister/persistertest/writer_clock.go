package persistertest

import "time"

// At sets the writer's clock: its next event is of a second later.
func (w *Writer) At(now time.Time) { w.now = now }
