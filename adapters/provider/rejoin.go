package provider

// Rejoin announces that the body broke off and that the bytes to come are of another one, which goes on
// where it was or earlier. What was begun of a frame is dropped: the other body has it whole. Messages
// and blocks stay open. Only machines with a Rejoin method pass over what they know already; for all
// others the other body must begin where the first one broke off.
func (d *Decoder) Rejoin() {
	d.frames, d.torn, d.last = Framer{max: d.frames.max, emit: d.frames.emit}, nil, nil
	if m, ok := d.machine.(interface{ Rejoin() }); ok && !d.closed {
		m.Rejoin()
	}
}
