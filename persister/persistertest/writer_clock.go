package persistertest

import "time"

// At sets the writer's clock. The time of its next event is one second later.
func (w *Writer) At(now time.Time) { w.now = now }
