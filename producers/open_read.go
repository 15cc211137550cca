package producers

import (
	"context"
	"fmt"

	"agentstream/schema"
)

// ReadOpen reads what of a run is open out of the log, for an agent that goes on with it and for whoever
// ends it in its place. last is the newest seq that was read, 0 when the log has nothing of the run. What
// has left the log's window is not seen: of a message that began there, only its end is known to be open
// when it has not come.
//
// It costs one reading of the run. Events are not decoded.
func ReadOpen(ctx context.Context, log Log, key schema.RunKey) (o *Open, last schema.Seq, err error) {
	o = new(Open)
	for p, err := range log.Since(ctx, key, 0) {
		if err != nil {
			return nil, 0, fmt.Errorf("producers: read what is open in %s behind %d: %w", key, last, err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return nil, 0, fmt.Errorf("producers: read what is open in %s behind %d: %w", key, last, err)
			}
			last = r.Seq
			o.begun = o.begun || string(r.Type) == schema.TypeTurnStart
			if _, err := o.reading().Next(r); err != nil {
				return nil, 0, fmt.Errorf("producers: read what is open in %s: event %d: %w", key, r.Seq, err)
			}
		}
	}
	return o, last, nil
}
