package schema

import "strings"

// Feeds are the runs of a tenant that never end, and that ingest fills. A protocol that has some names them. The zero value has none.
type Feeds struct {
	Prefix string                // the ids of all begin with it; "": there are none
	Is     func(run string) bool // reports whether an id that begins so is a feed's; nil: each is
}

// Has reports whether a run is a feed, by its id.
func (f Feeds) Has(run string) bool {
	return f.Prefix != "" && strings.HasPrefix(run, f.Prefix) && (f.Is == nil || f.Is(run))
}
