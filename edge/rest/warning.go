package rest

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"agentstream/edge/protocol"
	"agentstream/schema"
)

// Bounds of what is told of fields that are not known: of one request, and how many different lists are logged.
const (
	maxUnknown     = 8
	maxUnknownLog  = 100
	maxUnknownName = 64 // bytes
)

// appendUnknown appends the fields of an event's payload that its type does not name, each once, as type.field.
func appendUnknown(dst []string, e *schema.Event) []string {
	if len(dst) >= maxUnknown {
		return dst
	}
	for _, name := range schema.UnknownFields(nil, e.Type, e.Payload, maxUnknown) {
		name = e.Type + " " + schema.CutText(name, maxUnknownName)
		if len(dst) < maxUnknown && !slices.Contains(dst, name) {
			dst = append(dst, name)
		}
	}
	return dst
}

// warn names fields that are not known in the header Warning of the answer, and once in the log. They are stored all the
// same: the writer may be newer than this node. More often one is misspelt.
func (a *API) warn(c *protocol.Call, key schema.RunKey, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	text := "unknown payload fields: " + strings.Join(unknown, ", ")
	c.Writer.Header().Set("Warning", "299 agentstream "+strconv.QuoteToASCII(text))
	if a.warned.first(text) {
		a.cfg.Logger.Warn("unknown payload fields are stored, and no reader knows them", "run", key.String(), "fields", unknown)
	}
}

// once remembers texts, up to a bound. The zero once is ready to use, by any number of goroutines.
type once struct {
	mu    sync.Mutex
	texts map[string]bool
}

// first reports whether a text comes for the first time. It is false when too many others came before.
func (o *once) first(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.texts[text] || len(o.texts) >= maxUnknownLog {
		return false
	}
	if o.texts == nil {
		o.texts = make(map[string]bool)
	}
	o.texts[text] = true
	return true
}
