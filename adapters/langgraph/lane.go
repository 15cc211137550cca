package langgraph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"agentstream/schema"
)

// namespaceLane is the run itself, or a child that one namespace after the other has.
type namespaceLane struct {
	id    string // "" is the run itself
	path  []string
	scope string       // the namespace that has it now, as key writes it; "" when none has
	says  *openMessage // open in it
}

// lanes are those that this stream has used.
type lanes struct {
	root   *namespaceLane
	active map[string]*namespaceLane   // by namespace
	pools  map[string][]*namespaceLane // by the names of a namespace
	made   int
}

// maxLanes bounds them, for streams that do not say which namespaces have ended. What has no lane is in the run's own.
const maxLanes = 256

func key(scope []string) string { return strings.Join(scope, "\x00") }

// laneOf returns the lane of a namespace, which has it until it ends.
func (d *Decoder) laneOf(scope []string) *namespaceLane {
	if len(scope) == 0 {
		return d.root
	}
	l := d.active[key(scope)]
	if l == nil {
		if l = d.free(scope); l == nil {
			return d.root
		}
		l.scope = key(scope)
		d.active[l.scope] = l
	}
	return l
}

// owner returns the lane of messages and calls: that of the graph whose node the namespace is.
func (d *Decoder) owner(scope []string) *namespaceLane { return d.laneOf(scope[:max(len(scope)-1, 0)]) }

// free returns a lane that no namespace has, of those for the names of a namespace without the ids of tasks; nil when
// there are too many.
func (d *Decoder) free(scope []string) *namespaceLane {
	all := make([]string, len(scope))
	for i, s := range scope {
		all[i], _, _ = strings.Cut(s, ":")
	}
	names := key(all)
	for _, l := range d.pools[names] {
		if l.scope == "" && l.says == nil {
			return l
		}
	}
	if d.made >= maxLanes {
		return nil
	}
	d.made++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", d.cfg.RunID, names, len(d.pools[names])))
	l := &namespaceLane{id: "lg_" + hex.EncodeToString(sum[:12])}
	l.path = []string{d.cfg.RunID, l.id}
	d.pools[names] = append(d.pools[names], l)
	spawn := &event{}
	spawn.Params.Namespace = scope
	d.add(d.root, schema.TypeChildSpawn, spawn.payload(quoteField("child_id", l.id),
		quoteField("name", strings.Join(all, "/"))))
	return l
}

// release takes a lane from the namespace that has it.
func (d *Decoder) release(l *namespaceLane) {
	delete(d.active, l.scope)
	l.scope = ""
}
