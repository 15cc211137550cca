package metistest

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schemas conformance
var files embed.FS

// frames is compiled once.
var frames = sync.OnceValues(func() (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	for _, name := range []string{"frames", "events"} {
		b, err := files.ReadFile("schemas/" + name + ".json")
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		if err := c.AddResource("urn:metis:"+name, doc); err != nil {
			return nil, err
		}
	}
	return c.Compile("urn:metis:frames")
})

// Valid returns what is wrong with a frame from a server; nil when nothing is.
func Valid(frame []byte) error {
	s, err := frames()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(frame))
	if err != nil {
		return fmt.Errorf("frame %.300s: %w", frame, err)
	}
	if err := s.Validate(v); err != nil {
		return fmt.Errorf("frame %.600s: %w", frame, err)
	}
	return nil
}

// Types returns the names of all types of events, of both families, in no order.
func Types() (all []string, err error) {
	var doc struct {
		Defs map[string]json.RawMessage `json:"$defs"`
	}
	b, err := files.ReadFile("schemas/events.json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	for name := range doc.Defs {
		if name != "block" && name != "usage" {
			all = append(all, name)
		}
	}
	return all, nil
}

// Case is a recorded trace of a server and what a client shows behind it.
type Case struct {
	Name    string            `json:"-"`
	About   string            `json:"about"`
	Session string            `json:"session"` // that the client is attached to
	Frames  []json.RawMessage `json:"frames"`
	State   json.RawMessage   `json:"state"`
}

// Cases returns the conformance suite, by name.
func Cases() (all []Case, err error) {
	names, err := fs.Glob(files, "conformance/*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		c := Case{Name: path.Base(name)}
		if err := json.Unmarshal(b, &c); err != nil {
			return nil, fmt.Errorf("case %s: %w", name, err)
		}
		all = append(all, c)
	}
	return all, nil
}
