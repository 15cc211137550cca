package fair

import "context"

// Lanes are the slots of one kind of work. Commands have their own, which no read can take.
type Lanes struct {
	Reads, Commands *Slots
}

// NewLanes returns lanes of the same size, whose work computes on cores; nil: as it likes.
func NewLanes(cfg Config, on *Cores) *Lanes {
	l := &Lanes{Reads: New(cfg), Commands: New(cfg)}
	l.Reads.on, l.Commands.on, l.Commands.commands = on, on, true
	return l
}

// Cores returns those on which the work of the lanes computes; nil: as it likes.
func (l *Lanes) Cores() *Cores { return l.Reads.on }

// Of returns the slots of what ctx is for.
func (l *Lanes) Of(ctx context.Context) *Slots {
	if IsCommand(ctx) {
		return l.Commands
	}
	return l.Reads
}

// commandKey marks a context.
type commandKey struct{}

// Command marks what is done within ctx as needed by a command: by a request that changes something.
func Command(ctx context.Context) context.Context {
	if IsCommand(ctx) {
		return ctx
	}
	return context.WithValue(ctx, commandKey{}, true)
}

// IsCommand reports whether ctx is marked.
func IsCommand(ctx context.Context) bool {
	marked, _ := ctx.Value(commandKey{}).(bool)
	return marked
}
