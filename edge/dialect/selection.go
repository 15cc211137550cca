package dialect

// Selection selects the frames that a client is shown. Requests that differ in it alone share one projection, so the
// frames of a record do not depend on it. A frame that it hides keeps its place: cursors are the same under every
// selection. Frames of no record (Opener, Closer) are always shown. A Selection is never changed, and is used by many
// goroutines.
type Selection interface {
	// Key is equal for selections that show the same frames.
	Key() string
	// Match reports whether a frame is shown, by what the frame says of itself: Lane, Kind, Slot.
	Match(f *Frame) bool
}

// KeyOf returns a selection's key; "" for nil, which shows every frame.
func KeyOf(s Selection) string {
	if s == nil {
		return ""
	}
	return s.Key()
}
